"""Broken uploads for boards of every layout, while the process may hardly grow.

Arguments: a folder for boards, how many uploads, the first seed. Prints one JSON object.
"""

import collections
import hashlib
import io
import json
import logging
import resource
import sys
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient
from torch_holdout._noise.fixed import fixed_integers
from torch_holdout.service.server import hosting
from torch_holdout.service.server.app import create_app
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.metrics import Counters

from support.builders import boards

ROWS = 500
ROOM = 64 << 20  # bytes that the process may grow by, threads included
LIMITS = "teams = 5\nsubmissions = 900000\nreleases = 20\nbudget = 100"
SERVER = "[server]\nrequests_per_minute = 1000000"
LAYOUTS = {
    "classes": 'classes = 10\nupload = "classes"\npublic = 0.3\nids = "ids.csv"',
    "probabilities": 'classes = 10\nupload = "probabilities"\npublic = 0.3\nids = "ids.csv"',
}
HEADERS = (
    b"9999999999999", b"-1", b"0", b"'O'", b"'|O'", b"'<U4'", b"'|V8'", b"True", b"(", b")", b"}",
    b"'<f8'", b"'>i4'", b"\x00", b"None", b"__import__('os')", b"'<M8[ns]'", b"1e9", b", ,",
)  # fmt: skip
CELLS = (
    b"", b"nan", b"inf", b"-0", b"1e999", b"9" * 400, b"\x00", b"\xff", b'"', b'"a\n"', b"=1+1",
    b"\xef\xbb\xbf", b"0x1", b"1_0", b"\xd9\xa1", b",", b"\r", b"\n\n",
)  # fmt: skip


class Draws:
    """Numbers that are the same in every run."""

    def __init__(self, seed):
        self._seed, self._left = seed, []

    def below(self, high):
        """Return a whole number below a bound."""
        if not self._left:
            self._seed += 1
            self._left = fixed_integers(1 << 30, (256,), seed=self._seed).tolist()
        return self._left.pop() % high

    def one(self, things):
        """Return one of them."""
        return things[self.below(len(things))]


def good(layout):
    """Return uploads that fit: as npy and as CSV."""
    if layout == "classes":
        predictions = np.arange(ROWS) % 10
        lines = [f"row{i},{p}" for i, p in enumerate(predictions)]
        return boards.npy(predictions.astype(np.uint8)), csv("id,prediction", lines)
    predictions = np.full((ROWS, 10), 0.1, np.float32)
    head = "id," + ",".join(f"p{i}" for i in range(10))
    lines = [f"row{i}," + ",".join(["0.1"] * 10) for i in range(ROWS)]
    return boards.npy(predictions), csv(head, lines)


def csv(head, lines):
    return "\n".join([head, *lines, ""]).encode()


def broken(body, kind, draws):
    """Return a body with a few faults of the kinds that parsers stumble over."""
    body = bytearray(body)
    for _ in range(1 + draws.below(3)):
        change = draws.below(7)
        place = draws.below(max(len(body), 1))
        if change == 0 and body:
            body[place] = draws.below(256)
        elif change == 1:
            del body[place:]
        elif change == 2:
            body += bytes(draws.below(256) for _ in range(draws.below(200)))
        elif change == 3:
            near = draws.below(min(128, len(body) + 1))
            body[near : near + draws.below(12)] = draws.one(HEADERS if kind == "npy" else CELLS)
        elif change == 4:
            body[place : place + draws.below(30)] = draws.one(CELLS)
        elif change == 5:
            body = bytearray(draws.one(STRANGERS))
        else:
            del body[place : place + draws.below(20)]
    return bytes(body)


def strangers():
    """Return files of other kinds: zip, pickle, structured, huge claims, nothing."""
    objects, zipped = io.BytesIO(), io.BytesIO()
    np.save(objects, np.array([None, {}], dtype=object), allow_pickle=True)
    np.savez_compressed(zipped, np.zeros(4000))
    claim = "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"
    long = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 100
    structured = boards.npy(np.zeros(3, dtype=[("a", "i4")]))
    head = b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim.encode()
    return (objects.getvalue(), zipped.getvalue(), long, structured, head, b"", b"\x93NUMPY")


STRANGERS = strangers()


def client_of(folder, layout):
    """Return a client of a new board with this layout, and a token."""
    folder.mkdir(parents=True)
    (folder / "ids.csv").write_text("\n".join(["id", *(f"row{i}" for i in range(ROWS))]) + "\n")
    target = boards.digits(ROWS)
    config = boards.configured(folder, target, data=LAYOUTS[layout], limits=LIMITS, server=SERVER)
    hosting.initialise(config)
    token = hosting.add_team(config, "alpha")
    (folder / "counters").mkdir()
    app = create_app(Board.open(config), Counters(folder / "counters"))
    return TestClient(app, raise_server_exceptions=False), token


def put(client, token, body, kind):
    """Send a body under its own hash; return the status."""
    answer = client.put(
        f"/v1/boards/digits/submissions/{hashlib.sha256(body).hexdigest()}",
        content=body,
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": {"npy": "application/x-npy", "csv": "text/csv"}[kind],
        },
    )
    if b"Traceback" in answer.content or answer.status_code >= 500:
        raise SystemExit(f"{answer.status_code} for {body[:200]!r} as {kind}: {answer.text}")
    return answer.json().get("type", str(answer.status_code)).rpartition(":")[2]


def limit_memory(room):
    """Let the process grow by so many bytes from now on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main():
    folder, number, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    logging.getLogger("torch_holdout.service.access").setLevel("ERROR")
    made = {layout: client_of(folder / layout, layout) for layout in LAYOUTS}
    with made["classes"][0], made["probabilities"][0]:
        fuzz(made, number, seed)


def fuzz(made, number, seed):
    """Send good uploads, then broken ones under the limit; print what came of them."""
    bodies = {layout: dict(zip(("npy", "csv"), good(layout), strict=True)) for layout in LAYOUTS}
    outcomes = collections.Counter()
    for layout, (client, token) in made.items():
        for kind, body in bodies[layout].items():
            outcomes[f"good {put(client, token, body, kind)}"] += 1
    limit_memory(ROOM)
    draws = Draws(seed)
    for _ in range(number):
        layout, kind = draws.one(list(LAYOUTS)), draws.one(["npy", "csv"])
        outcomes[put(*made[layout], broken(bodies[layout][kind], kind, draws), kind)] += 1
    twin = "none"
    try:
        np.load(io.BytesIO(STRANGERS[4]))  # what a board must not do: it believes the header
    except MemoryError:
        twin = "MemoryError"
    print(json.dumps({"outcomes": outcomes, "twin": twin}))


if __name__ == "__main__":
    main()
