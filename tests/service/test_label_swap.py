"""Errors are no oracle: with other labels every answer to a bad upload has the same bytes."""

import hashlib
import io
import json

import numpy as np
import pytest
from starlette.testclient import TestClient
from torch_holdout.service.server import hosting
from torch_holdout.service.server.app import create_app
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.metrics import Counters

from support.builders import boards

NPY, CSV = "application/x-npy", "text/csv"


def bad_uploads(target):
    """Uploads that must be refused, each near a good one."""
    good = boards.guesses(700, target)
    stream = io.BytesIO()
    np.savez(stream, good)
    objects = io.BytesIO()
    np.save(objects, np.array([None, {}], dtype=object), allow_pickle=True)
    huge = boards.npy(good).replace(b"(1000,)", b"(9999999999999,)", 1)
    outside = good.copy()
    outside[-1] = 10
    return {
        "nothing": b"",
        "too large": boards.npy(np.zeros(2000, dtype="int64")),
        "text": b"0,1,2\n" * 20,
        "one row fewer": boards.npy(good[:-1]),
        "one row more": boards.npy(np.append(good, good[0])),
        "a column": boards.npy(good[:, None]),
        "floats": boards.npy(good.astype(float)),
        "a class that is none": boards.npy(outside),
        "negative": boards.npy(good.astype("int8") - 1),
        "a zip": stream.getvalue(),
        "objects": objects.getvalue(),
        "a claim of 10^13 rows": huge,
        "cut": boards.npy(good)[:-1],
        "longer": boards.npy(good) + b"\0",
        "big-endian": boards.npy(good.astype(">i8")),
        "fortran": boards.npy(np.asfortranarray(np.stack([good, good]))),
        "version 3": boards.npy(good).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x03", 1),
    }


def bad_probabilities(target):
    """Uploads that must be refused where a board takes probabilities, also as CSV by ids."""
    good = np.where(np.eye(10, dtype=bool)[target], 0.91, 0.01)
    arrays = {name: good.copy() for name in ("nan", "infinite", "negative", "above 1", "sums")}
    arrays["nan"][3, 3] = np.nan
    arrays["infinite"][3, 3] = np.inf
    arrays["negative"][3, :2] = -0.01, 0.03
    arrays["above 1"][3, 0] = 1.1
    arrays["sums"][3] *= 0.9
    made = {name: (NPY, boards.npy(array)) for name, array in arrays.items()}
    lines = [f"row {row}," + ",".join(map(str, good[row])) for row in range(len(target))]
    changes = {
        "an unknown id": lambda own: [own[0].replace("row 0", "row x"), *own[1:]],
        "an id twice": lambda own: [*own[:-1], own[0]],
        "a line fewer": lambda own: own[:-1],
        "a line more": lambda own: [*own, own[0]],
        "a cell fewer": lambda own: [own[0].rpartition(",")[0], *own[1:]],
        "no number": lambda own: [own[0].replace("0.91", "nan"), *own[1:]],
        "too large a number": lambda own: [own[0].replace("0.91", "1e999"), *own[1:]],
        "a sum": lambda own: [own[0].replace("0.91", "0.81"), *own[1:]],
        "a quote": lambda own: ['"' + own[0], *own[1:]],
    }
    header = "id," + ",".join(f"p{number}" for number in range(10))
    for name, change in changes.items():
        made[name] = (CSV, "\n".join([header, *change(lines)]).encode())
    made["no header"] = (CSV, "\n".join(lines).encode())
    return made


@pytest.fixture(scope="module")
def swapped(tmp_path_factory):
    """Two boards that differ in their labels only; a client and a token for each."""
    return two_boards(tmp_path_factory)


@pytest.fixture(scope="module")
def swapped_probabilities(tmp_path_factory):
    """Two boards that take probabilities, as npy and as CSV."""
    data = 'classes = 10\nupload = "probabilities"\npublic = 0.3\nids = "ids.csv"'
    return two_boards(tmp_path_factory, data=data)


def two_boards(tmp_path_factory, **parts):
    made = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"board{seed}")
        (folder / "ids.csv").write_text("id\n" + "".join(f"row {k}\n" for k in range(1000)))
        config = boards.configured(
            folder, boards.digits(seed=seed), server="[server]\nrequests_per_minute = 1000",
            **parts,
        )  # fmt: skip
        hosting.initialise(config)
        token = hosting.add_team(config, "alpha")
        app = create_app(Board.open(config), Counters(tmp_path_factory.mktemp("counters")))
        made.append((TestClient(app), token))
    return made


def seen(client, token, body, sha=None, kind=NPY):
    """Return everything of an answer that its sender sees, but the token and the time."""
    sha = sha or hashlib.sha256(body).hexdigest()
    answer = client.put(
        f"/v1/boards/digits/submissions/{sha}",
        content=body,
        headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
    )
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, headers, answer.content


def test_answers_to_bad_uploads_do_not_depend_on_the_labels(swapped):
    """The uploads are built from one board's labels, so that they fit it best."""
    statuses = set()
    for name, body in bad_uploads(boards.digits(seed=0)).items():
        one, other = (seen(client, token, body) for client, token in swapped)
        assert one == other, name
        assert one[0] in (413, 422), name
        statuses.add(json.loads(one[2])["type"])
        for more in ({"sha": "0" * 64}, {"kind": "text/csv"}):
            one, other = (seen(client, token, body, **more) for client, token in swapped)
            assert one == other, (name, more)
            assert 400 <= one[0] < 500
    assert statuses == {f"urn:torch-holdout:{kind}" for kind in ("layout", "range", "size")}


def test_nor_where_probabilities_and_csv_are_taken(swapped_probabilities):
    kinds = set()
    for name, (kind, body) in bad_probabilities(boards.digits(seed=0)).items():
        one, other = (seen(*own, body, kind=kind) for own in swapped_probabilities)
        assert one == other, name
        assert one[0] == 422, name
        kinds.add(json.loads(one[2])["type"].rpartition(":")[2])
    assert kinds == {"layout", "range", "finite", "ids"}


def test_the_good_upload_would_tell_them_apart(swapped):
    """The twin: with the same bytes, what is answered does depend on the labels."""
    body = boards.npy(boards.guesses(700, boards.digits(seed=0)))
    (status, _, one), (_, _, other) = (seen(client, token, body) for client, token in swapped)
    assert status == 201
    assert json.loads(one)["kind"] == "release"
    assert json.loads(other)["kind"] == "guess"
