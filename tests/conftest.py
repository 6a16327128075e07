"""How the tests are run: the same cases every time, on as many cores as ``-n`` says.

Hypothesis tries the same cases whenever the same code is run, so that a failure is no luck. (It
also tries numbers that stand in the modules loaded so far: new code brings new cases.)
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

# Files whose tests start ranks, servers or workers of their own: one after the other, because they
# choose free ports and have time limits.
TOGETHER = ("ddp", "ranks", "ray", "parallel", "processes", "workers", "live_view", "file_locks")

if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a core
    os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_modifyitems(items):
    """Keep a file's tests on one worker, and start with the longest."""
    for item in items:
        alone = any(word in item.path.stem for word in TOGETHER)
        item.add_marker(pytest.mark.xdist_group("processes" if alone else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, started when the first test wants it."""
    from support.machines.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.stop()
