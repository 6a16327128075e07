"""Hypothesis tries the same cases in every run, so that a failure is a change and not luck."""

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, started when the first test wants it."""
    from support.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.stop()
