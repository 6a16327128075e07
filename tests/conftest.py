"""How the tests are run: the same cases every time, on as many cores as ``-n`` says.

Hypothesis tries the same cases whenever the same code is run, so that a failure is no luck. (It
also tries numbers that stand in the modules loaded so far: new code brings new cases.)
"""

import logging
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


def asks_a_server(item):
    """Whether a test needs the PostgreSQL server, by its own fixture or by that of all backends."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    fixtures = getattr(item, "fixturenames", ())
    return "postgres" in fixtures or parameters.get("address") == "postgres"


def pytest_collection_modifyitems(items):
    """Mark what asks a server, and start with the longest."""
    for item in filter(asks_a_server, items):
        item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep a file's tests on one worker, and so those of the files above."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return "together" if any(word in file for word in TOGETHER) else file

    return ByFile(config, log)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, started when the first test wants it."""
    from support.machines.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def our_logger_as_it_was():
    """Name the test that leaves our logger changed, not the next one that reads it."""
    logger = logging.getLogger("torch_holdout")

    def state():
        return logger.level, logger.disabled, logger.propagate, list(logger.handlers)

    before = state()
    yield
    assert state() == before
