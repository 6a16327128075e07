"""Whatever holds numbers becomes the same tensor, read once; types are refused, never values."""

import array
import math
import operator
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.arrays import as_tensor, is_array

VALUES = [0.25, 1.0, 0.0, 0.5]
RESOLUTION = 65536


class Lazy:
    """Has ``__array__`` only, and other values each time it is read."""

    def __init__(self, *readings):
        self.readings = list(readings)
        self.reads = 0

    def __array__(self, dtype=None, copy=None):
        self.reads += 1
        return np.asarray(self.readings.pop(0))


class Bare:
    """Has ``__dlpack__`` and nothing else."""

    def __init__(self, values):
        self._tensor = torch.as_tensor(values)

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)


class Capsule(Bare):
    """Has DLPack's protocol only, as arrays on other devices have."""

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


class OnDevice(Lazy):
    """As CuPy's: it says that it is not on the host, and refuses to be read there."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion to a host array")

    def __dlpack_device__(self):
        return (8, 0)

    def __dlpack__(self, **options):
        return torch.tensor(VALUES, dtype=torch.float64).__dlpack__()


def strided(values):
    wide = np.zeros((len(values), 3))
    wide[:, 1] = values
    return wide[:, 1]


def read_only(values):
    locked = np.array(values)
    locked.flags.writeable = False
    return locked


KINDS = {
    "tensor": torch.tensor(VALUES, dtype=torch.float64),
    "with a gradient": torch.tensor(VALUES, dtype=torch.float64, requires_grad=True),
    "float64": np.array(VALUES),
    "float32": np.array(VALUES, dtype=np.float32),
    "float16": np.array(VALUES, dtype=np.float16),
    "long double": np.array(VALUES, dtype=np.longdouble),
    "big endian": np.array(VALUES, dtype=">f8"),
    "strided": strided(VALUES),
    "reversed": np.array(VALUES[::-1])[::-1],
    "read only": read_only(VALUES),
    "list": VALUES,
    "tuple": tuple(VALUES),
    "list of scalars": [np.float32(value) for value in VALUES],
    "list of tensors": [torch.tensor(value) for value in VALUES],
    "list of arrays": [np.array(value) for value in VALUES],
    "mixed list": [Fraction(1, 4), 1, False, np.float64(0.5)],
    "array.array": array.array("d", VALUES),
    "memoryview": memoryview(np.array(VALUES)),
    "Series": pd.Series(VALUES, index=[7, 3, 5, 1]),
    "nullable Series": pd.Series(VALUES, dtype="Float64"),
    "__array__": Lazy(VALUES),
    "__dlpack__": Capsule(VALUES),
    "__dlpack__ without a device": Bare(VALUES),
}


def levels(statistic, *arguments):
    return statistic.levels(arguments, {}, RESOLUTION).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_array_gives_the_same_levels(kind):
    given = KINDS[kind]
    if kind == "__array__":
        given = Lazy(VALUES)
    assert levels(th.BoundedMean(0.0, 1.0), given) == [16384, 65536, 0, 32768]


@pytest.mark.parametrize(
    "given",
    [
        np.array([True, False, True]),
        [True, False, True],
        [np.True_, np.False_, np.True_],
        [1, 0, 2**80],
        [True, None, True],
        np.array([1, 0, 9], dtype=np.uint8),
        np.array([1, 0, 2**63], dtype=np.uint64),
        np.array([1, -3, 1], dtype=np.int16),
        pd.Series([True, False, True]),
        pd.Series([True, pd.NA, True], dtype="boolean"),
        pd.Series([1, 0, 1], dtype="Int64"),
    ],
    ids=repr,
)
def test_booleans_and_whole_numbers_are_right_or_wrong(given):
    assert levels(th.ZeroOne(), given) == [RESOLUTION, 0, RESOLUTION]


@pytest.mark.parametrize("given", [[0.0, 1.0], np.zeros(2), pd.Series([1.0, 0.0]), [1, 0.5]])
def test_floats_are_not_taken_for_right_and_wrong(given):
    with pytest.raises(InvalidArgumentError, match="Expected booleans or integers"):
        levels(th.ZeroOne(), given)


def test_predictions_and_targets_may_be_arrays():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    target = np.array([0, 0, 1], dtype=np.int32)
    assert levels(th.ZeroOne(), scores, target) == [RESOLUTION, 0, RESOLUTION]
    assert levels(th.ZeroOne(), scores.argmax(1), target.tolist()) == [RESOLUTION, 0, RESOLUTION]
    assert levels(th.ZeroOne(), scores.tolist(), target) == [RESOLUTION, 0, RESOLUTION]
    of_arrays = levels(th.CrossEntropy(5.0), scores, target)
    assert of_arrays == levels(th.CrossEntropy(5.0), *map(torch.from_numpy, (scores, target)))


def test_a_function_of_the_users_gets_what_was_given_and_may_return_any_array():
    seen = []

    def squared(predictions, target):
        seen.append((type(predictions), type(target)))
        return (predictions - target) ** 2

    squares = th.BoundedMean(0.0, 4.0, per_example=squared)
    assert levels(squares, np.array([1.0, 2.0]), pd.Series([1.0, 0.0])) == [0, RESOLUTION]
    assert seen == [(np.ndarray, pd.Series)]
    listed = th.BoundedMean(0.0, 1.0, per_example=lambda p, y: list(map(operator.eq, p, y)))
    assert levels(listed, ["cat", "dog"], ["cat", "cat"]) == [RESOLUTION, 0]


def test_an_array_that_is_broadcast_in_a_function_is_refused():
    difference = th.BoundedMean(0.0, 1.0, per_example=lambda p, y: abs(p - y))
    with pytest.raises(InvalidArgumentError, match="an argument was broadcast"):
        levels(difference, np.zeros(5), np.ones(1))


@pytest.mark.parametrize(
    "given",
    [
        np.broadcast_to(np.float64(0.7310), 5),
        torch.tensor(0.7310).expand(5),
        Lazy(np.broadcast_to(np.float64(0.7310), 5)),
        Capsule(torch.tensor(0.7310).expand(5)),
    ],
    ids=["numpy", "torch", "__array__", "__dlpack__"],
)
def test_one_number_for_all_examples_is_refused(given):
    with pytest.raises(InvalidArgumentError, match="a value of its own for each example") as caught:
        levels(th.BoundedMean(0.0, 1.0), given)
    assert "7310" not in str(caught.value)


REFUSED = {
    "objects": np.array([0.7310, None], dtype=object),
    "strings": np.array(["0.7310"]),
    "bytes": np.array([b"0.7310"]),
    "dates": np.array(["2024-01-01"], dtype="M8[D]"),
    "durations": np.array([7310], dtype="m8[s]"),
    "records": np.array([(7310, 1.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "a mask": np.ma.masked_greater(np.array([0.5, 0.7310]), 0.6),
    "text": "0.7310",
    "a list of text": ["0.7310"],
    "a list of durations": [np.timedelta64(7310, "s")],
    "a list of dictionaries": [{"value": 0.7310}],
    "categories": pd.Series(["7310"], dtype="category"),
    "ragged lists": [[0.7310, 0.5], [0.5]],
    "a dictionary": {"value": 0.7310},
    "nothing": None,
    "a set": {0.7310},
    "a generator": (value for value in VALUES),
    "no array": Lazy("0.7310"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_holds_no_numbers_is_refused_without_a_value(kind):
    with pytest.raises(InvalidArgumentError, match="array of numbers or booleans") as caught:
        levels(th.BoundedMean(0.0, 1.0), REFUSED[kind])
    assert "7310" not in str(caught.value)
    assert "Nothing was charged" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros(3, dtype=complex), "real values"),
        (torch.zeros(3).to_sparse(), "dense"),
        (np.zeros((3, 2)), "shape"),
        ([[0.5, 0.5]], "shape"),
        (0.7310, "single number"),
        (np.float32(0.7310), "single number"),
        (np.array(0.7310), "single number"),
    ],
    ids=["complex", "sparse", "two dimensions", "nested", "float", "scalar", "no dimension"],
)
def test_shapes_and_other_types_are_refused_as_of_tensors(given, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        levels(th.BoundedMean(0.0, 1.0), given)
    assert "7310" not in str(caught.value)


@pytest.mark.parametrize("worse", [math.nan, math.inf, -math.inf, None, 10**400])
def test_no_value_in_a_list_raises(worse):
    assert levels(th.BoundedMean(0.0, 1.0), [0.0, worse]) == [0, RESOLUTION]


def test_an_array_is_read_once():
    lazy = Lazy([0.25, 0.5], [0.0, 0.0])
    assert levels(th.BoundedMean(0.0, 1.0), lazy) == [16384, 32768]
    assert lazy.reads == 1


def test_an_error_of_an_array_keeps_its_type_only():
    class Telling:
        def __array__(self):
            raise KeyError("the label is 7310")

    with pytest.raises(InvalidArgumentError, match="KeyError") as caught:
        levels(th.BoundedMean(0.0, 1.0), Telling())
    assert "7310" not in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None


def test_no_warning_of_an_array_is_shown():
    """Values decide whether there is one, and its text may quote them."""

    class Warns:
        def __array__(self):
            warnings.warn("the label is 7310", stacklevel=1)
            return np.array(VALUES) / np.array([1.0, 1.0, 0.0, 1.0])

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert levels(th.BoundedMean(0.0, 1.0), Warns())[2] == RESOLUTION
        large = np.array([1e300], dtype=np.longdouble) ** 2
        assert levels(th.BoundedMean(0.0, 1.0), large) == [RESOLUTION]
    assert shown == []


def test_memory_is_shared_where_it_can_be_and_rows_are_copied():
    values = np.array(VALUES)
    assert as_tensor(values).data_ptr() == values.ctypes.data
    assert as_tensor(Capsule(torch.tensor(VALUES))).tolist() == VALUES
    tensor = torch.tensor(VALUES)
    assert as_tensor(tensor) is tensor
    by_blocks = th.Blockwise(lambda column: column.double().mean(), blocks=2, low=0.0, high=1.0)
    sums = by_blocks.accumulator(RESOLUTION, size=4)
    sums.update(values)
    before = by_blocks.total(sums._rows[0], RESOLUTION)
    values[:] = 0.0
    assert by_blocks.total(sums._rows[0], RESOLUTION) == before > 0


def test_a_subclass_of_tensor_stays_one():
    class Own(torch.Tensor):
        pass

    own = torch.tensor(VALUES).as_subclass(Own)
    assert as_tensor(own) is own
    assert type(as_tensor([own[0], own[1]])) is Own


def test_an_array_on_a_device_is_not_read_through_the_host():
    assert as_tensor(OnDevice()).tolist() == VALUES


def test_arrays_are_told_by_their_protocol():
    assert [is_array(each) for each in (np.zeros(2), pd.Series([1]), torch.zeros(2))] == [True] * 3
    assert not any(map(is_array, (np.zeros(()), [1.0], "text", None, 1.0)))


def test_blocks_take_arrays_of_several_columns():
    def agreement(scores, target):
        return (scores.argmax(1) == target).double().mean()

    by_blocks = th.Blockwise(agreement, blocks=2, low=0.0, high=1.0)
    scores, target = np.eye(4), np.array([0, 1, 2, 0])
    totals = []
    for given in ((scores, target), (torch.eye(4).double(), torch.tensor([0, 1, 2, 0]))):
        sums = by_blocks.accumulator(RESOLUTION, size=4)
        sums.update(*given)
        totals.append(by_blocks.total(sums._rows[0], RESOLUTION))
    assert totals[0] == totals[1] > 0
