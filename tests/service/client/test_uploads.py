"""The same predictions are the same bytes; what a board would refuse is not sent."""

import hashlib
import io

import numpy as np
import pytest
import torch
from torch_holdout.errors import BoardRefusedError, InvalidArgumentError
from torch_holdout.service.client.answers import status_from
from torch_holdout.service.client.rows import RemoteRows
from torch_holdout.service.client.uploads import CSV, NPY, canonical, npy, upload_of


def facts(upload="classes", rows=4, classes=3):
    statistic = {"low": 0, "high": 1, "mode": "max", "kind": "accuracy"}
    return status_from({
        "name": "b", "title": "B", "mode": "ladder", "state": "open", "closes": None, "rows": rows,
        "upload": upload, "classes": classes, "statistics": {"accuracy": statistic},
        "first": "accuracy", "position": 0, "chain": "",
    })  # fmt: skip


def test_equal_predictions_have_one_address(tmp_path):
    classes = [2, 0, 1, 1]
    np.save(tmp_path / "own.npy", np.array(classes, dtype=np.int32))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(np.array(classes)[::-1][::-1]))
    alike = [
        classes,
        tuple(classes),
        np.array(classes),
        np.array(classes, dtype=">i8"),
        np.array(classes * 2)[:4],
        torch.tensor(classes),
        torch.tensor(classes, dtype=torch.uint8),
        tmp_path / "own.npy",
        str(tmp_path / "fortran.npy"),
    ]
    bodies = {upload_of(each, facts()).body for each in alike}
    # This is on the wire in every version: another byte would be another submission.
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }"
    header = text + b" " * (128 - 10 - len(text) - 1) + b"\n"
    assert bodies == {b"\x93NUMPY\x01\x00" + bytes([118, 0]) + header + bytes(classes)}
    assert upload_of(classes, facts()).sha == hashlib.sha256(bodies.pop()).hexdigest()


def test_other_predictions_have_another_address():
    assert upload_of([0, 0, 1, 1], facts()).sha != upload_of([0, 0, 1, 2], facts()).sha


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2"])
def test_floats_go_out_as_float32(dtype):
    rows = np.array([[0.5, 0.25, 0.25]] * 4, dtype=dtype)
    upload = upload_of(rows, facts("probabilities"))
    sent = np.load(io.BytesIO(upload.body), allow_pickle=False)
    assert sent.dtype == np.dtype("<f4")
    assert upload.media_type == NPY
    np.testing.assert_array_equal(sent, rows)


@pytest.mark.parametrize(("classes", "dtype"), [(256, "u1"), (257, "<u2"), (65537, "<u4")])
def test_classes_go_out_as_the_smallest_integers_that_hold_them(classes, dtype):
    array = canonical(np.array([0, classes - 1, 1, 2]), facts(classes=classes))
    assert array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(np.load(io.BytesIO(npy(array))), [0, classes - 1, 1, 2])


@pytest.mark.parametrize("shape", [(4,), (4, 3), (1,), (10_000,), (10_000, 10)])
def test_the_header_is_one_that_numpy_reads_and_is_aligned(shape):
    body = npy(np.zeros(shape, dtype="<f4"))
    assert np.load(io.BytesIO(body), allow_pickle=False).shape == shape
    assert (len(body) - 4 * int(np.prod(shape))) % 64 == 0


REFUSED = {
    "too few rows": ([0, 1, 2], "classes", "shape [3]", "layout"),
    "a column too many": ([[0], [1], [2], [0]], "classes", "shape [4, 1]", "layout"),
    "floats as classes": ([0.0, 1.0, 2.0, 0.0], "classes", "type float", "layout"),
    "scores as classes": (np.zeros((4, 3)), "classes", "scores.argmax(1)", "layout"),
    "a class too many": ([0, 1, 2, 3], "classes", "classes from 0 to 2", "range"),
    "a negative class": ([0, 1, 2, -1], "classes", "classes from 0 to 2", "range"),
    "logits": (np.ones((4, 3)), "probabilities", "scores.softmax(1)", "range"),
    "NaN": ([0.0, float("nan"), 0.0, 0.0], "scores", "finite", "finite"),
    "beyond float32": ([0.0, 1e300, 0.0, 0.0], "scores", "finite", "finite"),
    "no data": (torch.empty(4, device="meta", dtype=torch.long), "classes", "layout", "layout"),
    "sparse": (torch.zeros(4).to_sparse(), "scores", "layout", "layout"),
    "conjugated": (torch.zeros(4, dtype=torch.complex64).conj(), "scores", "complex", "layout"),
    "a mask": (np.ma.masked_array([0, 1, 2, 0], mask=[0, 0, 1, 0]), "classes", "mask", "layout"),
    "complex": (np.zeros(4, dtype=complex), "scores", "complex", "layout"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_board_would_refuse_is_refused_here(case):
    predictions, upload, words, problem = REFUSED[case]
    with pytest.raises(BoardRefusedError) as refused:
        upload_of(predictions, facts(upload))
    assert words in str(refused.value)
    assert "Nothing was sent" in str(refused.value)
    assert refused.value.problem == problem


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of what it may still change
def test_nested_and_quantised_tensors_are_refused():
    nested = torch.nested.nested_tensor([torch.zeros(2)] * 2)
    quantised = torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)
    for tensor in (nested, quantised):
        with pytest.raises(BoardRefusedError, match="Nothing was sent"):
            upload_of(tensor, facts("scores"))
        with pytest.raises(InvalidArgumentError, match="Nothing was sent"):
            RemoteRows(facts("scores")).update(tensor)


def headed(text):
    """An npy file of version 1 with this header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(4)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04"),
        headed(b"{'descr': '|u1', 'fortran_order': False, 'shape': (" + b"9" * 30 + b",), }\n"),
        headed(b"{'descr': '|u1', 'fortran_order': False, 'sh)4,),}\n"),
        headed(b"(" * 900 + b"\n"),
    ],
)
def test_a_file_that_is_no_array_is_refused(tmp_path, content):
    (tmp_path / "own.npy").write_bytes(content)
    with pytest.raises(BoardRefusedError, match=r"numpy\.save"):
        upload_of(tmp_path / "own.npy", facts())


def test_pickled_objects_are_not_opened(tmp_path):
    np.save(tmp_path / "own.npy", np.array([{}, 1, 2, 3], dtype=object), allow_pickle=True)
    with pytest.raises(BoardRefusedError, match="without pickled objects"):
        upload_of(tmp_path / "own.npy", facts())


def test_several_arrays_in_one_file_are_refused(tmp_path):
    np.savez(tmp_path / "own.npz", a=np.zeros(4))
    with pytest.raises(BoardRefusedError, match="one array"):
        upload_of(tmp_path / "own.npz", facts())


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(BoardRefusedError, match="there is none"):
        upload_of(tmp_path / "own.npy", facts())


def test_csv_goes_out_as_it_is(tmp_path):
    text = "id,prediction\nd,2\na,0\nb,1\nc,1\n"
    (tmp_path / "own.csv").write_text(text)
    upload = upload_of(tmp_path / "own.csv", facts())
    assert (upload.body, upload.media_type) == (text.encode(), CSV)


@pytest.mark.parametrize(
    "text",
    ["", "id,prediction\na,0\n", "id,prediction\na,0\na,1\nb,1\nc,1\n", "id\na\nb\nc\nd\n", "\xff"],
)
def test_csv_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "own.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(BoardRefusedError, match="4 rows, each id once"):
        upload_of(tmp_path / "own.csv", facts())
