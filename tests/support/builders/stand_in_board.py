"""A board in memory that answers by counting: for tests of HTTP, limits and pages."""

import hashlib
import threading

from torch_holdout.errors import LedgerError
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.tokens import Caller
from torch_holdout.service.server.uploads import Layout
from torch_holdout.service.server.view import TeamRow, View

TOKENS = {
    "team-alpha": Caller(scope="team", team="alpha", token="aaaaaaaa"),
    "team-beta": Caller(scope="team", team="beta", token="bbbbbbbb"),
    "host": Caller(scope="host", token="hhhhhhhh"),
    "reader": Caller(scope="reader", token="rrrrrrrr"),
}


def configuration(**sections):
    """A whole board.toml as an object; sections are merged into it."""
    content = {
        "board": {"name": "digits", "title": "Digits"},
        "data": {"labels": "labels.npy", "classes": 10, "upload": "classes", "public": 0.3},
        "statistics": {"accuracy": {"kind": "accuracy"}},
        "feedback": {"mode": "ladder", "baseline": 0.55, "step": 0.01},
        "limits": {"teams": 5, "submissions": 10, "releases": 4, "budget": 20},
        "store": {"ledger": "sqlite:///board.db"},
        "server": {"requests_per_minute": 100_000},
    }
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values
    return BoardConfig.model_validate(content)


CERTIFICATE = {
    "certified": True, "half_width": {"accuracy": 0.0209}, "bracket": 8.3, "failure": 0.05,
    "assumptions": ["The rows are drawn independently.", "Labels are read by this server only."],
}  # fmt: skip


class StandInBoard:
    """What the real one offers; ``fail`` is raised by the next upload instead of an answer."""

    def __init__(self, config=None, rows=40, fail=None):
        self.config = config or configuration()
        self.layout = Layout(rows=rows, upload="classes", classes=10)
        self.state, self.fail, self.answers, self.events = "open", fail, {}, []
        self.busy, self.most_busy, self.lock = 0, 0, threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self._view = None

    def close_connections(self):
        self.ended = True

    def caller(self, token):
        if token is None and self.config.board.visibility == "public":
            return Caller(scope="reader")
        if token not in TOKENS:
            raise RefusedError(Problem.UNAUTHORISED, "Expected a valid token.")
        return TOKENS[token]

    def require_open(self, caller):
        if self.state != "open":
            raise RefusedError(Problem.CLOSED, "The board is closed.")

    def submit(self, caller, sha, body, media_type, *, final=False):
        with self.lock:
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        self.gate.wait(20)
        with self.lock:
            self.busy -= 1
            return self._answer(caller, sha, body)

    def _answer(self, caller, sha, body):
        if self.fail is not None:
            raise self.fail
        if hashlib.sha256(body).hexdigest() != sha:
            raise RefusedError(Problem.DIGEST, "Expected the content of its address.")
        new = (caller.team, sha) not in self.answers
        if new:
            self.answers[caller.team, sha] = len(self.answers) + 1
        return new, self.answer(caller.team, sha, "guess" if new else "repeat")

    def answer(self, team, sha, kind="guess"):
        position = self.answers[team, sha]
        return {
            "submission": sha, "position": position, "kind": kind, "better": False,
            "results": {"accuracy": {"value": None, "interval": None}}, "chain": "c" * 64,
            "quota": {"submissions_left": 10 - position, "releases_left": 4},
        }  # fmt: skip

    def submission(self, caller, sha):
        if (caller.team, sha) not in self.answers:
            raise RefusedError(Problem.UNKNOWN, "Expected one of the team's own submissions.")
        return self.answer(caller.team, sha)

    def submissions(self, caller, after=0, limit=100):
        own = [sha for team, sha in self.answers if team == caller.team]
        found = [self.answer(caller.team, sha) for sha in own]
        found = [answer for answer in found if answer["position"] > after][:limit]
        return {"submissions": found, "next": None}

    def finalists(self, caller, submissions):
        return {"finalists": submissions, "at_most": 2}

    def me(self, caller):
        return {"scope": caller.scope, "team": caller.team}

    def rotate(self, caller, *, now=False):
        return {"token": "th_new", "now": now}

    def facts(self):
        return {
            "name": "digits", "title": self.config.board.title, "mode": "ladder",
            "state": self.state, "closes": None, "rows": self.layout.rows, "upload": "classes",
            "classes": 10, "first": "accuracy", "budget": 20, "closed_at": None,
            "public": 0.3, "baseline": 0.55,
            "statistics": {"accuracy": {"low": 0, "high": 1, "mode": "max", "kind": "accuracy"}},
            "position": len(self.answers), "chain": "c" * 64, "certificate": CERTIFICATE,
        }  # fmt: skip

    def view(self):
        key = (self.state, len(self.answers))
        if self._view is None or self._view[0] != key:
            self._view = key, self._make_view()
        return self._view[1]

    def _make_view(self):
        rows = [
            TeamRow(rank=(1, 2), team=team, value=value, interval=(value - 0.02, value + 0.02),
                not_told_apart_from=other, submissions_left=7, releases_left=3, exhausted=False)
            for team, value, other in (("alpha", 0.91, ("beta",)), ("beta", 0.9, ("alpha",)))
        ]  # fmt: skip
        return View(
            facts=self.facts(), state=self.state, position=len(self.answers), chain="c" * 64,
            rows=tuple(rows), certified=True, promise=("Now: 12 rows.",),
            budget={"releases": 20, "released": 2, "submissions": 50,
                    "submitted": len(self.answers), "nats": 12.5},
        )  # fmt: skip

    def team_view(self, caller):
        answers = self.submissions(caller)["submissions"]
        quota = {"submissions_left": 7, "releases_left": 3}
        return {"team": caller.team, "quota": quota, "submissions": answers,
                "finalists": [], "expires_at": None}  # fmt: skip

    def host_view(self, caller):
        return {"teams": [{"team": "alpha", "refused": 0}], "refusals": [], "events": [],
                "plan": {}, "budget": {}}  # fmt: skip

    def record_events(self, events):
        self.events += [(*own[:2], own.caller.team, *own[3:]) for own in events]


LEDGER_IS_AWAY = LedgerError("the server's address and a secret")
