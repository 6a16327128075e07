"""Hypothesis tries the same cases whenever the same code is run, so that a failure is no luck.

(It also tries numbers that stand in the modules loaded so far: new code brings new cases.)
"""

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, started when the first test wants it."""
    from support.machines.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.stop()
