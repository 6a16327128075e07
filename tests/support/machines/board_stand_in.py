"""A board that speaks the API on the loopback and decides in 20 lines: for tests of the client.

Its answers are those of a noiseless ladder above a baseline, of a record, of a gate that keeps what
is better, or of a sealed board. It keeps its state when it is stopped and started again, as a
board's ledger does; it can be told to fail, to drop connections, or to forget.
"""

import hashlib
import io
import json
import threading
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

TOKEN = "th_abcdefgh_" + "k" * 43
NAME = "digits"


class BoardStandIn:
    """One board on a free port of the loopback.

    Args:
        truth: The labels: classes, or floating values for ``upload="scores"``.
        classes: How many classes; None for scores.
        upload: ``"classes"``, ``"probabilities"`` or ``"scores"``.
        mode: ``"ladder"``, ``"record"``, ``"gate"`` or ``"sealed"``.
        submissions: What the team may submit.
        releases: What it may be told.
    """

    def __init__(
        self,
        truth,
        *,
        classes=10,
        upload="classes",
        mode="ladder",
        baseline=0.3,
        step=0.01,
        submissions=50,
        releases=8,
        second=False,
    ):
        self.truth = np.asarray(truth)
        self.classes, self.upload, self.mode = classes, upload, mode
        self.baseline, self.step = baseline, step
        self.submissions, self.releases = submissions, releases
        self.second = second  # whether there is a second statistic, without a baseline
        self.state = "open"
        self.answers = {}  # by address, in order
        self.best = None
        self.finalists = []
        self.requests = []  # (method, path, status)
        self.bodies = []  # (length, media type)
        self.failures = deque()  # what the next requests get instead: a status, or "drop", "late"
        self.retry_after = None
        self.problem_detail = "Expected something else."
        self.only = None  # which method failures are for
        self.lock = threading.Lock()
        self.port = 0
        self.server = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/boards/{NAME}"

    def start(self):
        handler = type("Handler", (_Handler,), {"board": self})
        self.server = _Server(("127.0.0.1", self.port), handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()
            self.server = None

    def count(self, method, ending=""):
        return sum(m == method and path.endswith(ending) for m, path, _ in self.requests)

    def chain(self, position):
        return hashlib.sha256(f"{id(self)} {position}".encode()).hexdigest()

    def facts(self):
        statistics = {"accuracy": {"low": 0.0, "high": 1.0, "mode": "max", "kind": "accuracy"}}
        if self.upload == "scores":
            statistics = {"error": {"low": 0.0, "high": 4.0, "mode": "min", "kind": "mse"}}
        if self.second:
            statistics["loss"] = {"low": 0.0, "high": 5.0, "mode": "min", "kind": "cross_entropy"}
        told = self.mode in ("ladder", "record")
        return {
            "name": NAME, "title": "Digits", "mode": self.mode, "state": self.state,
            "closes": None, "rows": len(self.truth), "upload": self.upload,
            "classes": self.classes, "statistics": statistics, "first": next(iter(statistics)),
            "baseline": self.baseline if told else None, "step": self.step if told else None,
            "budget": {}, "certificate": {}, "position": len(self.answers),
            "events": len(self.answers), "chain": self.chain(len(self.answers)),
        }  # fmt: skip

    def quota(self):
        told = sum(answer["kind"] == "release" for answer in self.answers.values())
        return {
            "submissions": self.submissions,
            "releases": self.releases,
            "submissions_left": self.submissions - len(self.answers),
            "releases_left": self.releases - told,
        }

    def submit(self, sha, body):
        """Answer an upload: a status and JSON."""
        if self.state != "open":
            return _problem("closed", 409)
        if hashlib.sha256(body).hexdigest() != sha:
            return _problem("digest", 422)
        array = np.load(io.BytesIO(body), allow_pickle=False)
        if len(array) != len(self.truth):
            return _problem("layout", 422, self.problem_detail)
        if sha in self.answers:
            return 200, self.repeat(sha)
        quota = self.quota()
        told = self.mode in ("ladder", "record")
        if quota["submissions_left"] == 0 or (told and quota["releases_left"] == 0):
            return _problem("exhausted-team", 409)
        self.answers[sha] = {}
        self.answers[sha] = self.decide(sha, array)
        self.answers[sha]["quota"] = self.quota()
        return 201, self.answers[sha]

    def value(self, array):
        if self.upload == "scores":
            return float(((array.astype(float) - self.truth) ** 2).mean())
        guessed = array if array.ndim == 1 else array.argmax(1)
        return float((guessed == self.truth).mean())

    def decide(self, sha, array):
        value, sign = self.value(array), -1 if self.upload == "scores" else 1
        reference = self.best if self.best is not None else self.baseline
        if self.mode == "gate":
            kind = "first" if self.best is None else "kept" if value > self.best else "reverted"
            better = None if kind == "first" else kind == "kept"
        elif self.mode == "sealed":
            kind, better = "sealed", None
        else:
            better = sign * (value - reference) > self.step
            kind = "release" if better else "guess"
        if better or kind == "first":
            self.best = value
        shown = self.best if kind in ("release", "guess") else None
        names = self.facts()["statistics"]
        results = {name: {"value": None, "interval": None} for name in names}
        results[next(iter(names))]["value"] = shown
        position = len(self.answers)
        return {"submission": sha, "position": position, "kind": kind, "better": better,
                "results": results, "chain": self.chain(position)}  # fmt: skip

    def repeat(self, sha):
        return self.answers[sha] | {"kind": "repeat", "quota": self.quota()}

    def forget(self, answers):
        """Go back to a copy with as many answers."""
        self.answers = dict(list(self.answers.items())[:answers])


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Stay silent."""

    def do_GET(self):
        self.reply()

    def do_PUT(self):
        self.reply()

    def reply(self):
        board, path = self.board, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if body:
            board.bodies.append((len(body), self.headers["Content-Type"]))
        with board.lock:
            fails = board.failures and board.only in (None, self.command)
            failure = board.failures.popleft() if fails else None
            if failure in (None, "late"):
                status, content = self.route(path, body)
            else:
                status, content = failure if failure != "drop" else 0, {"detail": "not now"}
            board.requests.append((self.command, path, status))
        if failure in ("drop", "late"):  # the answer is committed, and lost
            self.close_connection = True
            self.connection.close()
            return
        self.send(status, content)

    def route(self, path, body):
        board, api = self.board, f"/v1/boards/{NAME}"
        if path == api:
            return 200, board.facts()
        if path == f"{api}/leaderboard":
            own = board.facts()
            return 200, {key: own[key] for key in ("position", "chain", "state")} | {"rows": []}
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _problem("unauthorised", 401)
        if path == "/v1/me":
            return 200, {"scope": "team", "team": "alpha", "quota": board.quota()}
        if path == f"{api}/finalists":
            board.finalists = json.loads(body)["submissions"]
            return 200, {"finalists": board.finalists, "at_most": 2}
        kind, _, sha = path.removeprefix(f"{api}/").partition("/")
        if kind != "submissions":
            return _problem("unknown", 404)
        if self.command == "GET":
            return (200, board.repeat(sha)) if sha in board.answers else _problem("unknown", 404)
        status, content = board.submit(sha, body)
        if "final=true" in self.path and status < 300:
            board.finalists.append(sha)
        return status, content

    def send(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        kind = "problem+json" if status >= 400 else "json"
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(body)))
        if self.board.retry_after is not None and status in (429, 503):
            self.send_header("Retry-After", str(self.board.retry_after))
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()
        self.wfile.write(body)


def _problem(kind, status, detail="Expected something else."):
    return status, {
        "type": f"urn:torch-holdout:{kind}",
        "title": kind.capitalize(),
        "status": status,
        "detail": detail,
    }


@contextmanager
def standing_in(*args, **kwargs):
    """Run a stand-in for the length of a block."""
    board = BoardStandIn(*args, **kwargs)
    try:
        yield board
    finally:
        board.stop()
