"""Routes: who may, what is refused in which order, and that nothing is echoed."""

import base64
import hashlib
import json
import re
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient
from torch_holdout.service.server.app import create_app
from torch_holdout.service.server.metrics import ROUTES, Counters, exposition

from support.builders.stand_in_board import LEDGER_IS_AWAY, StandInBoard, configuration
from support.machines.board_server import wait_until

BOARD = "/v1/boards/digits"
NPY = {"Content-Type": "application/x-npy"}
ALPHA = {"Authorization": "Bearer team-alpha"}
SECRET = "0.8438 is the raw value of the holdout"


@pytest.fixture
def counters(tmp_path):
    return Counters(tmp_path)


@pytest.fixture
def board():
    return StandInBoard()


@pytest.fixture
def client(board, counters):
    with TestClient(create_app(board, counters), raise_server_exceptions=False) as made:
        yield made


def upload(seed=0):
    body = np.arange(seed, seed + 40).astype("uint8").tobytes()
    return body, hashlib.sha256(body).hexdigest()


def put(client, body, sha, headers=ALPHA, **more):
    return client.put(f"{BOARD}/submissions/{sha}", content=body, headers=NPY | headers | more)


def test_an_upload_is_answered_once_and_repeated(client):
    body, sha = upload()
    first, again = put(client, body, sha), put(client, body, sha)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["kind"], again.json()["kind"]) == ("guess", "repeat")
    assert client.get(f"{BOARD}/submissions/{sha}", headers=ALPHA).json()["submission"] == sha
    listed = client.get(f"{BOARD}/submissions?after=0&limit=5", headers=ALPHA).json()
    assert [answer["submission"] for answer in listed["submissions"]] == [sha]


def test_a_team_does_not_see_anothers_submission(client):
    body, sha = upload()
    put(client, body, sha)
    other = client.get(f"{BOARD}/submissions/{sha}", headers={"Authorization": "Bearer team-beta"})
    unknown = client.get(f"{BOARD}/submissions/{'0' * 64}", headers=ALPHA)
    assert (other.status_code, other.content) == (404, unknown.content)


def refused(answer, status, kind):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) == {"type", "title", "status", "detail"}
    assert answer.json()["type"] == f"urn:torch-holdout:{kind}"
    assert answer.headers["cache-control"] == "no-store"
    return answer


def test_refusals_come_in_the_order_of_the_design(client, board):
    """Token, scope, state, length, size, type, then the body: each hides what comes after it."""
    body, sha = upload()
    wrong = {"Content-Type": "image/png", "Content-Length": "999999999"}
    refused(put(client, body, sha, {}, **wrong), 401, "unauthorised")
    refused(put(client, body, sha, {"Authorization": "Bearer host"}, **wrong), 403, "forbidden")
    board.state = "closed"
    refused(put(client, body, sha, **wrong), 409, "closed")
    board.state = "open"
    refused(put(client, iter([body]), sha), 411, "length")
    refused(put(client, body, sha, **wrong), 413, "size")
    refused(put(client, body, sha, **{"Content-Type": "image/png"}), 415, "type")
    refused(put(client, body, sha, **{"Content-Encoding": "gzip"}), 415, "type")
    refused(put(client, body[:-1] + b"x", sha), 422, "digest")
    assert board.answers == {}


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer nobody", "Basic dXNlcjp0ZWFtLWFscGhh", "team-alpha", "Bearer  ", "\u00e9"],
)
def test_a_wrong_token_is_not_nobody(client, header):
    """A reader without a token is let in; one with a token that is wrong is not."""
    assert client.get(BOARD).status_code == 200
    answer = client.get(BOARD, headers={"Authorization": header.encode("latin-1")})
    refused(answer, 401, "unauthorised")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/boards/other", 404, "unknown"),
        ("GET", "/v1/boards/..%2Fdigits", 404, "unknown"),
        ("GET", "/v1/boards/digits/", 404, "unknown"),
        ("GET", "/", 404, "unknown"),
        ("GET", "/docs", 404, "unknown"),
        ("GET", "/assets/..%2fapp.py", 404, "unknown"),
        ("GET", "/assets/app.js", 404, "unknown"),
        ("DELETE", "/v1/boards/digits", 405, "method"),
        ("GET", f"{BOARD}/submissions/{'g' * 64}", 404, "unknown"),
        ("GET", f"{BOARD}/submissions/{'A' * 64}", 404, "unknown"),
        ("GET", f"{BOARD}/submissions?limit=0", 422, "request"),
        ("GET", f"{BOARD}/submissions?after=x", 422, "request"),
        ("GET", f"{BOARD}/submissions?after=-1", 422, "request"),
        ("POST", "/v1/token?now=maybe", 422, "request"),
    ],
)
def test_addresses_that_are_none(client, method, path, status, kind):
    refused(client.request(method, path, headers=ALPHA), status, kind)


def test_nothing_that_was_sent_comes_back(client):
    """FastAPI's own 422 quotes the input."""
    mark = "mark-4711"
    body, _ = upload()
    answers = [
        client.get(f"{BOARD}/submissions?after={mark}", headers=ALPHA),
        client.get(f"{BOARD}/submissions/{mark}", headers=ALPHA),
        client.get(f"/v1/boards/{mark}", headers={"Authorization": f"Bearer {mark}"}),
        client.post("/v1/token", params={"now": mark}, headers=ALPHA),
        client.put(f"{BOARD}/finalists", content=f'{{"{mark}": ', headers=ALPHA | JSON),
        client.put(f"{BOARD}/finalists", json={"submissions": {mark: 1}}, headers=ALPHA),
        put(client, mark.encode(), "0" * 64),
        put(client, body, "0" * 64, **{"Content-Type": mark}),
    ]
    assert [answer.status_code for answer in answers] == [422, 404, 404, 422, 422, 422, 422, 415]
    assert all(mark not in answer.text + str(answer.headers) for answer in answers)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b'{"submissions": 1}', b'{"submissions": [1]}',
                b"\xff", b"[" * 10_000, b'{"submissions": ' + b"9" * 9000]
)  # fmt: skip
def test_finalists_are_a_list_of_texts(client, content):
    answer = client.put(f"{BOARD}/finalists", content=content, headers=ALPHA | JSON)
    refused(answer, 422, "request")


def test_finalists_are_replaced(client):
    answer = client.put(f"{BOARD}/finalists", json={"submissions": ["0" * 64]}, headers=ALPHA)
    assert answer.json() == {"finalists": ["0" * 64], "at_most": 2}
    refused(
        client.put(f"{BOARD}/finalists", json={"submissions": ["0" * 20_000]}, headers=ALPHA),
        413, "size",
    )  # fmt: skip


def test_a_token_says_what_it_may_do(client):
    assert client.get("/v1/me", headers=ALPHA).json() == {"scope": "team", "team": "alpha"}
    refused(client.get("/v1/me"), 401, "unauthorised")
    made = client.post("/v1/token?now=true", headers=ALPHA)
    assert (made.status_code, made.json()) == (201, {"token": "th_new", "now": True})


@pytest.mark.parametrize("fail", [ValueError(SECRET), KeyError(SECRET), MemoryError(SECRET)])
def test_a_failure_is_a_constant_and_its_text_stays_here(client, board, caplog, capfd, fail):
    body, sha = upload()
    board.fail = fail
    with caplog.at_level("INFO"):
        answer = refused(put(client, body, sha), 500, "internal")
    board.fail = TypeError("another")
    assert put(client, body, sha).content == answer.content
    written = caplog.text + "".join(capfd.readouterr())
    assert SECRET not in answer.text + written
    assert f"{type(fail).__name__} at " in written


def test_a_ledger_that_is_away_may_be_asked_again(client, board):
    body, sha = upload()
    board.fail = LEDGER_IS_AWAY
    answer = refused(put(client, body, sha), 503, "ledger")
    assert answer.headers["retry-after"] == "2"
    assert "secret" not in answer.text
    board.fail = None
    assert put(client, body, sha).status_code == 201


def basic(token, name=""):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()}


@pytest.mark.parametrize(
    ("page", "headers", "status"),
    [
        ("", {}, 200),
        ("", basic("reader"), 200),
        ("", basic("wrong"), 401),
        ("/team", {}, 401),
        ("/team", basic("team-alpha"), 200),
        ("/team", basic("team-alpha", name="any"), 200),
        ("/team", basic("host"), 403),
        ("/team", {"Authorization": "Basic !"}, 401),
        ("/team", ALPHA, 401),
        ("/host", basic("host"), 200),
        ("/host", basic("team-alpha"), 403),
    ],
)
def test_pages_ask_for_a_password(client, page, headers, status):
    answer = client.get(f"/boards/digits{page}", headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == 'Basic realm="board"'
    if status == 200:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == ("no-store" if page else "no-cache")


def test_a_board_for_teams_is_closed_to_others(counters):
    board = StandInBoard(configuration(board={"visibility": "teams"}))
    with TestClient(create_app(board, counters)) as client:
        for path in (BOARD, f"{BOARD}/leaderboard", "/boards/digits"):
            assert client.get(path).status_code == 401
        assert client.get(f"{BOARD}/leaderboard", headers=ALPHA).status_code == 200
        page = client.get("/boards/digits", headers=basic("reader"))
        assert page.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/boards/digits", f"{BOARD}/leaderboard"])
def test_a_view_is_sent_once_to_whoever_has_it(client, path):
    first = client.get(path)
    tag = first.headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    body, sha = upload()
    put(client, body, sha)
    after = client.get(path, headers={"If-None-Match": tag})
    assert after.status_code == 200
    assert after.headers["etag"] != tag


def test_every_answer_has_its_headers(client):
    for path in ("/", BOARD, "/boards/digits", "/assets/board.css", "/v1/openapi.json"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_requests_of_a_token_are_counted(counters):
    board = StandInBoard(configuration(server={"requests_per_minute": 3}))
    with TestClient(create_app(board, counters)) as client:
        assert [client.get("/v1/me", headers=ALPHA).status_code for _ in range(3)] == [200] * 3
        answer = refused(client.get("/v1/me", headers=ALPHA), 429, "rate")
        assert 0 < int(answer.headers["retry-after"]) <= 60
        beta = {"Authorization": "Bearer team-beta"}
        assert client.get("/v1/me", headers=beta).status_code == 200


def test_at_most_two_uploads_are_evaluated_at_once(client, board):
    board.gate.clear()
    bodies = [upload(seed) for seed in range(8)]
    threads = [threading.Thread(target=put, args=(client, *body)) for body in bodies]
    for thread in threads:
        thread.start()
    assert client.get(BOARD).status_code == 200  # reading does not wait behind uploads
    board.gate.set()
    for thread in threads:
        thread.join()
    assert len(board.answers) == 8
    assert board.most_busy <= 2


def test_events_are_written_with_status_size_and_position(board, counters):
    body, sha = upload()
    with TestClient(create_app(board, counters)) as client:
        put(client, body, sha)
        put(client, body, sha)
        put(client, body, "0" * 64)
        client.post("/v1/token", headers=ALPHA)
    assert board.events == [
        ("submit", 201, "alpha", 40, 1),
        ("submit", 200, "alpha", 40, 1),
        ("submit", 422, "alpha", 40, None),
        ("rotate", 201, "alpha", 0, None),
    ]
    assert board.ended


def test_events_wait_while_the_ledger_is_away(board, counters, monkeypatch):
    body, sha = upload()
    record, tries = board.record_events, []

    def away_at_first(events):
        tries.append(events)
        if len(tries) == 1:
            raise LEDGER_IS_AWAY
        record(events)

    monkeypatch.setattr(board, "record_events", away_at_first)
    with TestClient(create_app(board, counters)) as client:
        put(client, body, sha)
        put(client, body, "0" * 64)
        wait_until(lambda: tries)
    assert [event[1] for event in board.events] == [201, 422]


def test_the_log_has_routes_and_no_addresses(client, caplog):
    body, sha = upload()
    with caplog.at_level("INFO", logger="torch_holdout.service.access"):
        put(client, body, sha)
        client.get(f"{BOARD}/submissions?after=17", headers=ALPHA)
    assert "PUT /v1/boards/{board}/submissions/{sha256} 201" in caplog.text
    assert all(word not in caplog.text for word in (sha, "after", "team-alpha", "testclient"))


def test_routes_of_the_metrics_are_those_of_the_app(client, tmp_path):
    body, sha = upload()
    put(client, body, sha)
    paths = [BOARD, f"{BOARD}/leaderboard", f"{BOARD}/submissions", f"{BOARD}/submissions/{sha}"]
    paths += ["/v1/me", "/boards/digits", "/assets/board.js", "/nothing", "/v1/openapi.json"]
    for path in paths:
        client.get(path, headers={} if path == "/boards/digits" else ALPHA)
    client.get("/boards/digits/team", headers=basic("team-alpha"))
    client.get("/boards/digits/host", headers=basic("host"))
    client.put(f"{BOARD}/finalists", json={"submissions": []}, headers=ALPHA)
    client.post("/v1/token", headers=ALPHA)
    text = exposition(tmp_path)
    assert text.count('route="other"') == 2  # nothing there, and the description
    used = set(re.findall(r'method="(\w+)",route="(/[^"]*)"', text))
    assert {f"{method} {route}" for method, route in used} == set(ROUTES) - {"other"}
    assert 'torch_holdout_requests_total{method="PUT",route="/v1/boards/{board}/submissions' in text
    assert "torch_holdout_received_bytes_total 58" in text  # 40, and finalists


def test_the_description_needs_no_other_page(client):
    described = client.get("/v1/openapi.json").json()
    upload = described["paths"]["/v1/boards/{board}/submissions/{sha256}"]["put"]
    assert set(upload["requestBody"]["content"]) == {"application/x-npy", "text/csv"}
    assert "application/problem+json" in upload["responses"]["422"]["content"]
    assert "HTTPValidationError" not in json.dumps(described)
