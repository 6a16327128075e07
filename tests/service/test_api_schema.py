"""The API against its own description: requests made from it, in process and over a socket."""

import contextlib
import hashlib
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from torch_holdout.service.server import hosting
from torch_holdout.service.server.app import create_app
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.edge import ACCESS
from torch_holdout.service.server.metrics import Counters, exposition

from support.builders import boards
from support.builders.stand_in_board import StandInBoard
from support.machines.board_server import in_thread
from support.machines.soak import soak

LIMITS = "teams = 5\nsubmissions = 900000\nreleases = 20\nbudget = 100"
SERVER = "[server]\nrequests_per_minute = 1000000"
CHECKS = [
    *(not_a_server_error, status_code_conformance, content_type_conformance),
    *(response_headers_conformance, response_schema_conformance),
]
SETTINGS = settings(
    max_examples=soak(2000, 12), deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@schemathesis.serializer("application/x-npy")
def as_bytes(_context, value):
    """A body as it is."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A board, the tokens of two teams, and its counters."""
    folder = tmp_path_factory.mktemp("board")
    config = boards.configured(folder, limits=LIMITS, server=SERVER)
    hosting.initialise(config)
    tokens = [hosting.add_team(config, team) for team in ("alpha", "beta")]
    return Board.open(config), tokens, tmp_path_factory.mktemp("counters")


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    level = ACCESS.level
    ACCESS.setLevel("WARNING")
    yield
    ACCESS.setLevel(level)


@pytest.fixture(scope="module")
def in_process(real):
    board, _, counters = real
    app = create_app(board, Counters(counters))
    return schemathesis.openapi.from_asgi("/v1/openapi.json", app)


@pytest.fixture(scope="module")
def over_a_socket(real, tmp_path_factory):
    board, _, _ = real
    with in_thread(board, tmp_path_factory.mktemp("socket")) as url:
        yield schemathesis.openapi.from_url(f"{url}/v1/openapi.json")


def call(case, tokens):
    """Send a request as a team; uploads often under their own hash, so that they are parsed."""
    alpha, beta = tokens
    token = beta if case.operation.path == "/v1/token" else alpha  # rotating ends a token
    if case.path_parameters and "board" in case.path_parameters and len(str(case.body)) % 8:
        case.path_parameters["board"] = "digits"
    if isinstance(case.body, bytes) and len(case.body) % 4:
        case.path_parameters["sha256"] = hashlib.sha256(case.body).hexdigest()
    response = case.call(headers={"Authorization": f"Bearer {token}"})
    case.validate_response(response, checks=CHECKS)
    assert "Traceback" not in response.text
    return response


def call_everything(schema, tokens):
    """Send requests as the description has them, and as it has them not, to every route."""
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        for mode in GenerationMode:

            @SETTINGS
            @given(case=operation.as_strategy(generation_mode=mode))
            def one(case):
                call(case, tokens)

            with contextlib.suppress(Unsatisfiable):  # nothing about a route may be wrong
                one()
    assert len(operations) == 8


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 300))
def test_requests_in_process(real, in_process):
    call_everything(in_process, real[1])


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 300))
def test_requests_over_a_socket(real, over_a_socket):
    call_everything(over_a_socket, real[1])


def test_requests_were_counted_and_none_failed(real):
    """What ran before this reached the routes; hypothesis decides which uploads were parsed."""
    text = exposition(real[2])
    assert 'status="500"' not in text
    assert int(re.search(r"sent_bytes_total (\d+)", text)[1]) > 0


class FailingBoard(StandInBoard):
    """A twin whose list of submissions fails, and whose facts are not as described."""

    def submissions(self, caller, after=0, limit=100):
        raise ZeroDivisionError

    def facts(self):
        return super().facts() | {"rows": "many"}


@pytest.mark.parametrize("path", ["/v1/boards/{board}", "/v1/boards/{board}/submissions"])
def test_twins_are_caught(tmp_path, path):
    app = create_app(FailingBoard(), Counters(tmp_path))
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    case = schema[path]["GET"].Case(path_parameters={"board": "digits"})
    response = case.call(headers={"Authorization": "Bearer team-alpha"})
    with pytest.raises(FailureGroup, match="1 distinct failure"):
        case.validate_response(response, checks=CHECKS)
