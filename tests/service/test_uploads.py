"""Uploads: exactly the layout, or a refusal that depends on the upload and public facts only."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.service.server.layouts import read_ids
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.uploads import (
    CSV,
    NPY,
    Layout,
    UploadFolder,
    digest,
    is_sha,
    parse,
)

from support.builders.boards import npy

CLASSES = Layout(rows=4, upload="classes", classes=3, ids=("a", "b", 'c"', "d,e"))
MANY = Layout(rows=2, upload="classes", classes=1000)
CHANCES = Layout(rows=2, upload="probabilities", classes=3, ids=("a", "b"))
SCORES = Layout(rows=3, upload="scores", ids=("x", "y", "z"))
GOOD = {
    "classes": (CLASSES, np.array([0, 1, 2, 0], dtype=np.uint8)),
    "int64 classes": (CLASSES, np.array([0, 1, 2, 0])),
    "many classes": (MANY, np.array([999, 0], dtype=np.uint16)),
    "float32 probabilities": (CHANCES, np.array([[0.2, 0.3, 0.5], [1, 0, 0]], dtype=np.float32)),
    "float16 probabilities": (CHANCES, np.array([[0.2, 0.3, 0.5], [1, 0, 0]], dtype=np.float16)),
    "scores": (SCORES, np.array([-1.5, 0.0, 1e300])),
}


@pytest.mark.parametrize(("layout", "array"), GOOD.values(), ids=GOOD)
def test_what_fits_is_read_in_place(layout, array):
    read = parse(npy(array), NPY, layout)
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)
    assert len(npy(array)) <= layout.largest


def structured():
    return np.zeros(4, dtype=[("a", "u1")])


def header(text, body=bytes(4), version=b"\x01\x00"):
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode() + body


ROWS4 = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }"
BAD_NPY = {
    "nothing": b"",
    "no magic": b"\x93NUMPX" + bytes(100),
    "cut in the header": npy(np.zeros(4, dtype=np.uint8))[:20],
    "a byte less": npy(np.zeros(4, dtype=np.uint8))[:-1],
    "a byte more": npy(np.zeros(4, dtype=np.uint8)) + b"\0",
    "another shape": npy(np.zeros(5, dtype=np.uint8)),
    "two dimensions": npy(np.zeros((4, 1), dtype=np.uint8)),
    "no dimension": npy(np.uint8(1)),
    "floats": npy(np.zeros(4)),
    "booleans": npy(np.zeros(4, dtype=bool)),
    "big-endian": npy(np.zeros(4, dtype=">i8")),
    "objects": npy(np.array([{}, {}, {}, {}], dtype=object)),
    "structured": npy(structured()),
    "text": npy(np.array(["a", "b", "c", "d"])),
    "a pickle": pickle.dumps(np.zeros(4, dtype=np.uint8)),
    "version 3": header(ROWS4, version=b"\x03\x00"),
    "a long header": header(ROWS4 + " " * 1024),
    "a header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100),
    "10^13 rows": header(ROWS4.replace("(4,)", "(10000000000000,)")),
    "negative rows": header(ROWS4.replace("(4,)", "(-4,)")),
    "another order of keys": header("{'shape': (4,), 'descr': '|u1', 'fortran_order': False}"),
    "code": header("{'descr': '|u1', 'fortran_order': False, 'shape': (__import__('os'),)}"),
    "Fortran": header(ROWS4.replace("False", "True")),
}


@pytest.mark.parametrize("body", BAD_NPY.values(), ids=BAD_NPY)
def test_what_does_not_fit_is_one_and_the_same_refusal(body):
    with pytest.raises(RefusedError) as raised:
        parse(body, NPY, CLASSES)
    assert raised.value.problem is Problem.LAYOUT
    assert raised.value.detail.startswith("Expected uint8 or int classes of shape [4]")


def test_a_zip_is_refused():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.npy", npy(np.zeros(4, dtype=np.uint8)))
    with pytest.raises(RefusedError):
        parse(stream.getvalue(), NPY, CLASSES)


def test_both_versions_of_the_format_are_read():
    for version in (b"\x01\x00", b"\x02\x00"):
        assert parse(header(ROWS4, version=version), NPY, CLASSES).tolist() == [0, 0, 0, 0]


BAD_VALUES = {
    "a class above": (CLASSES, np.array([0, 1, 3, 0]), Problem.RANGE),
    "a class below": (CLASSES, np.array([0, 1, -1, 0]), Problem.RANGE),
    "not a number": (SCORES, np.array([0.0, np.nan, 1.0]), Problem.FINITE),
    "infinite": (CHANCES, np.array([[np.inf, 0, 0], [1, 0, 0]]), Problem.FINITE),
    "a sum above one": (CHANCES, np.array([[0.5, 0.5, 0.1], [1, 0, 0]]), Problem.RANGE),
    "a chance below zero": (CHANCES, np.array([[1.5, -0.5, 0], [1, 0, 0]]), Problem.RANGE),
}


@pytest.mark.parametrize(("layout", "array", "problem"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_outside_are_refused_without_being_shown(layout, array, problem):
    with pytest.raises(RefusedError) as raised:
        parse(npy(array), NPY, layout)
    assert raised.value.problem is problem
    assert "nan" not in raised.value.detail


BAD_CSV = {
    "no header": (b"a,0\nb,1\nx,2\n", Problem.LAYOUT),
    "a row less": (b"id,prediction\nx,0\ny,1\n", Problem.LAYOUT),
    "a row more": (b"id,prediction\nx,0\ny,1\nz,2\nz,2\n", Problem.LAYOUT),
    "a column more": (b"id,prediction\nx,0,1\ny,1,1\nz,2,2\n", Problem.LAYOUT),
    "words": (b"id,prediction\nx,zero\ny,1\nz,2\n", Problem.LAYOUT),
    "nan": (b"id,prediction\nx,nan\ny,1\nz,2\n", Problem.LAYOUT),
    "an underscore": (b"id,prediction\nx,1_0\ny,1\nz,2\n", Problem.LAYOUT),
    "other digits": ("id,prediction\nx,\u0661\ny,1\nz,2\n".encode(), Problem.LAYOUT),
    "not UTF-8": (b"id,prediction\n\xff,0\ny,1\nz,2\n", Problem.LAYOUT),
    "a zero byte": (b"id,prediction\nx\0,0\ny,1\nz,2\n", Problem.IDS),
    "an open quote": (b'id,prediction\n"x,0\ny,1\nz,2\n', Problem.LAYOUT),
    "too large": (b"id,prediction\nx,1e999\ny,1\nz,2\n", Problem.FINITE),
    "an id twice": (b"id,prediction\nx,0\nx,1\nz,2\n", Problem.IDS),
    "an unknown id": (b"id,prediction\nx,0\nw,1\nz,2\n", Problem.IDS),
    "both: values come first": (b"id,prediction\nx,0\nw,1e999\nz,2\n", Problem.FINITE),
}


class TestCsv:
    def test_rows_come_in_any_order(self):
        body = b'id,prediction\n"d,e",2\nb,1\n"c""",0\na,2\n'
        assert parse(body, CSV, CLASSES).tolist() == [2, 1, 0, 2]
        body = b"id,p0,p1,p2\r\nb,1,0,0\r\na,.25,2.5e-1,0.5\r\n"
        assert parse(body, CSV, CHANCES).tolist() == [[0.25, 0.25, 0.5], [1, 0, 0]]
        assert len(body) <= CHANCES.largest

    def test_only_with_ids(self):
        with pytest.raises(RefusedError) as raised:
            parse(b"id,prediction\n", CSV, MANY)
        assert raised.value.problem is Problem.MEDIA_TYPE

    @pytest.mark.parametrize(("body", "problem"), BAD_CSV.values(), ids=BAD_CSV)
    def test_other_files_are_refused(self, body, problem):
        with pytest.raises(RefusedError) as raised:
            parse(body, CSV, SCORES)
        assert raised.value.problem is problem

    def test_ids_are_read_strictly(self, tmp_path):
        place = tmp_path / "ids.csv"
        place.write_text('id\na\n"b,c"\n')
        assert read_ids(place, 2) == ("a", "b,c")
        for text in ("a\nb\n", "id\na\na\n", "id\na\n", "id,x\na,1\nb,2\n", 'id\n"a\nb"\nc\n'):
            place.write_text(text)
            with pytest.raises(Exception, match=r"2 different ids"):
                read_ids(place, 2)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([NPY, CSV]))
def test_bytes_are_refused_and_never_more(body, kind):
    for start in (b"", b"\x93NUMPY\x01\x00", b"id,prediction\n"):
        with pytest.raises(RefusedError) as raised:
            parse(start + body, kind, SCORES)
        assert raised.value.problem.status == 422


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_edited_upload_is_refused_or_read(data):
    body = bytearray(npy(np.array([0, 1, 2, 0], dtype=np.uint8)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = parse(bytes(body), NPY, CLASSES)
    except RefusedError:
        return
    assert read.shape == (4,)
    assert set(read.tolist()) <= {0, 1, 2}


def test_a_claimed_size_allocates_nothing():
    for body in (BAD_NPY["10^13 rows"], BAD_NPY["a header of 4 GB"]):
        tracemalloc.start()
        with pytest.raises(RefusedError):
            parse(body, NPY, CLASSES)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


class TestFolder:
    def test_a_body_is_kept_under_its_hash(self, tmp_path):
        folder = UploadFolder(tmp_path / "uploads", longest=100)
        sha = digest(b"body")
        folder.keep(sha, b"body")
        folder.keep(sha, b"body")
        (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert (kept.name, kept.stat().st_mode & 0o777) == (sha, 0o600)
        assert (tmp_path / "uploads").stat().st_mode & 0o777 == 0o700
        kept.write_bytes(b"edited")
        assert folder.read(sha) is None

    @pytest.mark.parametrize("sha", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
    def test_other_names_are_no_addresses(self, tmp_path, sha):
        assert not is_sha(sha)
        with pytest.raises(RefusedError):
            UploadFolder(tmp_path, longest=100).read(sha)
