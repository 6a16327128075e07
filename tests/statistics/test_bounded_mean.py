import copy
import functools
import pickle
import traceback

import numpy as np
import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch_holdout.errors import InvalidArgumentError, SealedValueError

from support.builders.tensors import quantised

LEVELS = 65536


def total(statistic, *arguments, resolution=LEVELS):
    """The raw sum; only tests look into the seal."""
    sums = statistic.accumulator(resolution)
    sums.update(*arguments)
    return int(sums._sealed)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.int8,
    ],
)
def test_exact_for_every_dtype(dtype):
    values = torch.tensor([0, 1, 2, 4, 9], dtype=dtype)
    assert total(th.BoundedMean(0, 4), values) == LEVELS * (0 + 1 + 2 + 4 + 4) // 4


def test_bool_counts():
    assert total(th.ZeroOne(), torch.tensor([True, False, True])) == 2 * LEVELS


@pytest.mark.parametrize(("mode", "worse"), [("min", LEVELS), ("max", 0)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_not_finite_is_the_worse_bound(mode, worse, bad, dtype):
    assert total(th.BoundedMean(-1.0, 3.0, mode=mode), torch.tensor([bad], dtype=dtype)) == worse


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=20),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.integers(1, 2**24),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_one_example_moves_the_sum_by_at_most_the_resolution(values, low, width, resolution, dtype):
    statistic = th.BoundedMean(low, low + width)
    levels = statistic.levels((torch.tensor(values, dtype=dtype),), {}, resolution)
    assert levels.dtype == torch.int64
    assert int(levels.min()) >= 0
    assert int(levels.max()) <= resolution


def test_quantisation_error_is_half_a_level():
    values = torch.linspace(0, 5, 10_001, dtype=torch.float64)
    levels = th.BoundedMean(0, 5).levels((values,), {}, LEVELS)
    assert float((levels / LEVELS * 5 - values).abs().max()) <= 2.5 / LEVELS + 1e-12


def test_batching_and_order_do_not_matter():
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 7 - 1
    statistic = th.BoundedMean(0.0, 5.0)
    for size in (1, 7, 64, 1000):
        sums = statistic.accumulator(LEVELS)
        for batch in values[torch.randperm(1000)].split(size):
            sums.update(batch)
        assert int(sums._sealed) == total(statistic, values)
        assert sums._kept == 1000


class TestSmallBatchesTogether:
    """Values wait for each other: that must be seen by nobody."""

    def test_whatever_is_read_counts_all_batches(self):
        values = torch.rand(1000, generator=torch.Generator().manual_seed(1)) * 7 - 1
        for name in ("_kept", "_sealed", "_squares", "_beyond", "_squares_beyond"):
            once, often = (
                th.BoundedMean(0.0, 5.0).accumulator(LEVELS, size=900, rank=0, world=2)
                for _ in range(2)
            )
            for batch in values.split(64):
                once.update(batch)
                often.update(batch)
                assert often._kept <= 450
            assert int(getattr(once, name)) == int(getattr(often, name))
            assert once._seen == 1000

    def test_few_wait(self):
        sums = th.BoundedMean(0.0, 1.0).accumulator(LEVELS)
        for _ in range(1000):
            sums.update(torch.rand(64))
            assert sum(map(len, sums._waiting)) < 2**14
        assert sums._seen == sums._kept == 64_000

    def test_memory_that_is_used_again_changes_nothing(self):
        """The twin keeps the batch's own memory."""
        batch, sums = torch.zeros(8, dtype=torch.float64), th.BoundedMean(0, 1).accumulator(LEVELS)
        twin = th.BoundedMean(0, 1).accumulator(LEVELS)
        twin._values = lambda arguments, named: arguments[0]
        for each in (sums, twin):
            batch.fill_(1.0)
            each.update(batch)
            batch.fill_(0.0)
        assert (int(sums._sealed), int(twin._sealed)) == (8 * LEVELS, 0)

    def test_a_wrong_batch_is_refused_when_it_comes(self):
        sums = th.BoundedMean(0, 1).accumulator(LEVELS)
        sums.update(torch.ones(3))
        for wrong in (torch.tensor(0.5), torch.zeros(2, 2), torch.zeros(1).expand(4)):
            with pytest.raises(InvalidArgumentError):
                sums.update(wrong)
        assert (sums._seen, int(sums._sealed)) == (3, 3 * LEVELS)


def test_no_gradient_no_graph_and_inference_mode():
    values = torch.rand(3, requires_grad=True)
    sums = th.BoundedMean(0, 1).accumulator(LEVELS)
    with torch.inference_mode():
        sums.update(values)
    sums.update(values)
    assert not sums._sealed.requires_grad
    assert sums._kept == 6


def test_zero_one_takes_logits_classes_and_correctness():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    target = torch.tensor([0, 1, 1])
    for arguments in ((logits, target), (logits.argmax(1), target), (logits.argmax(1) == target,)):
        assert total(th.ZeroOne(), *arguments, resolution=1) == 2


def test_zero_one_counts_nan_logits_as_wrong():
    logits = torch.tensor([[float("nan"), 1.0], [1.0, float("nan")], [3.0, 0.0]])
    assert total(th.ZeroOne(), logits, torch.tensor([0, 1, 0]), resolution=1) == 1


def test_broadcast_arguments_are_refused():
    """One target for eight predictions would count one example eight times."""
    logits, target = torch.zeros(8, 2), torch.zeros(1, dtype=torch.long)
    for arguments in ((logits, target), (logits[:1], torch.zeros(8, dtype=torch.long))):
        with pytest.raises(InvalidArgumentError, match=r"Expected"):
            total(th.ZeroOne(), *arguments)
    with pytest.raises(InvalidArgumentError, match="broadcast"):
        total(th.BoundedMean(0, 1, per_example=torch.add), torch.zeros(8), torch.zeros(1))


def test_arguments_may_be_named():
    logits, target = torch.eye(3), torch.tensor([0, 1, 1])
    sums = th.ZeroOne().accumulator(1)
    sums.update(preds=logits, target=target)
    assert int(sums._sealed) == 2
    for statistic in (th.ZeroOne(), th.BoundedMean(0, 1)):
        with pytest.raises(InvalidArgumentError):
            statistic.accumulator(1).update(nothing=logits)


def test_bounds_of_every_size():
    worst = torch.tensor([float("nan")])
    for low, high in ((2**24, 2**24 + 1), (0, 1e39), (-3e38, 3e38), (0, 1e-46), (0, 2**1000)):
        assert total(th.BoundedMean(low, high), worst) == LEVELS
        best = torch.tensor([float(high)], dtype=torch.float64)
        assert total(th.BoundedMean(low, high), best) == LEVELS


@pytest.mark.parametrize(
    "values",
    [
        torch.eye(3).to_sparse()[0],
        quantised(),
        torch.zeros(3, device="meta"),
    ],
    ids=["sparse", "quantised", "meta"],
)
def test_odd_tensors_are_refused(values):
    with pytest.raises(InvalidArgumentError, match="dense"):
        total(th.BoundedMean(0, 1), values)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, values):
        return values * self.factor

    __call__ = apply


def keyword(default):
    def function(values, *, factor=default):
        return values * factor

    return function


def wrapped(function):
    @functools.wraps(function)
    def inner(values):
        return function(values)

    return inner


def test_the_source_tells_functions_apart():
    def scaled(factor):
        return lambda values: values * factor

    functions = [
        scaled(1),
        scaled(2),
        functools.partial(torch.mul, 1.0),
        functools.partial(torch.mul, 2.0),
        lambda v: v,
        lambda v: v + 1,
    ]
    functions += [
        Scaled(1).apply, Scaled(2).apply, Scaled(1), Scaled(2), keyword(1), keyword(2),
        torch.nn.CrossEntropyLoss(reduction="none"),
        torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.5),
        wrapped(lambda v: v * 3), wrapped(lambda v: v * 4),
    ]  # fmt: skip
    sources = [th.BoundedMean(0, 1, per_example=f).source() for f in functions]
    assert len(set(sources)) == len(functions)
    assert th.BoundedMean(0, 1, per_example=scaled(1)).source() == sources[0]


def test_cross_entropy_is_clipped_and_exact_in_half_precision():
    logits = torch.tensor([[9.0, -9.0], [0.5, 0.25]])
    target = torch.tensor([1, 0])
    loss = functional.cross_entropy(logits, target, reduction="none").clamp(0, 5)
    assert total(th.CrossEntropy(5.0), logits, target) == int((loss / 5 * LEVELS).round().sum())
    assert total(th.CrossEntropy(5.0), logits.bfloat16(), target) == total(
        th.CrossEntropy(5.0), logits, target
    )


def test_batch_mean_is_refused_with_the_diff_to_make():
    with pytest.raises(InvalidArgumentError) as caught:
        total(th.BoundedMean(0, 5), torch.tensor(0.731))
    assert '+    F.cross_entropy(logits, y, reduction="none")' in str(caught.value)
    assert "0.731" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((torch.zeros(3, 2),), "shape"),
        ((torch.zeros(3, 1),), "shape"),
        ((torch.zeros(3, dtype=torch.complex64),), "real"),
        (("text",), "tensor"),
        ((np.array([None] * 3),), "tensor"),
        ((0.731,), "single number"),
        ((torch.zeros(3), torch.zeros(3)), "per_example"),
        ((), "0 arguments"),
    ],
)
def test_wrong_values_are_refused(arguments, word):
    with pytest.raises(InvalidArgumentError, match=word):
        total(th.BoundedMean(0, 1), *arguments)


def test_a_mean_for_zero_one_is_told_to_be_one_number():
    with pytest.raises(InvalidArgumentError, match="single number"):
        th.ZeroOne().accumulator(resolution=1).update(torch.tensor(0.5))


@pytest.mark.parametrize(
    "arguments",
    [
        (1.0, 0.0),
        (1.0, 1.0),
        (float("nan"), 1.0),
        (0.0, float("inf")),
        ("0", "1"),
        (True, 2),
        (-1.5e308, 1.5e308),
    ],
)
def test_bad_bounds_are_refused(arguments):
    with pytest.raises(InvalidArgumentError):
        th.BoundedMean(*arguments)


def test_bad_mode_and_function_are_refused():
    with pytest.raises(InvalidArgumentError, match="mode"):
        th.BoundedMean(0, 1, mode="up")
    with pytest.raises(InvalidArgumentError, match="per_example"):
        th.BoundedMean(0, 1, per_example=3)


def leaky(values, target):
    raise ValueError(f"target was {target.tolist()}")


def warning(values, target):
    import warnings

    warnings.warn(f"target was {target.tolist()}", stacklevel=1)
    return values


def test_user_code_cannot_leak_through_exceptions_or_warnings():
    target = torch.tensor([7310])
    with pytest.raises(InvalidArgumentError) as caught:
        total(th.BoundedMean(0, 1, per_example=leaky), torch.zeros(1), target)
    text = "".join(traceback.format_exception(caught.value))
    assert "7310" not in text
    assert "ValueError" in str(caught.value)
    assert caught.value.__context__ is None
    total(th.BoundedMean(0, 1, per_example=warning), torch.zeros(1), target)  # warnings are errors


def test_out_of_range_class_does_not_print_the_target():
    with pytest.raises(InvalidArgumentError) as caught:
        total(th.CrossEntropy(5.0), torch.zeros(1, 3), torch.tensor([7310]))
    assert "7310" not in str(caught.value)


class TestSeal:
    @pytest.fixture
    def sums(self):
        sums = th.BoundedMean(0, 1).accumulator(LEVELS)
        sums.update(torch.tensor([0.731, 0.731]))
        return sums

    @pytest.mark.parametrize(
        "look",
        [
            float,
            int,
            complex,
            bytes,
            np.asarray,
            torch.tensor,
            copy.copy,
            copy.deepcopy,
            pickle.dumps,
            round,
            abs,
            sum,
            list,
            "{:.3f}".format,
            vars,
            hex,
        ],
    )
    def test_no_way_to_look(self, sums, look):
        with pytest.raises(
            (SealedValueError, TypeError, ValueError, AttributeError, RuntimeError)
        ) as caught:
            look(sums)
        assert "0.731" not in str(caught.value)
        assert str(int(sums._sealed)) not in str(caught.value)

    def test_text_shows_only_the_count(self, sums):
        for text in (repr(sums), str(sums), f"{sums}", "%s" % sums):  # noqa: UP031
            assert text == "<sealed sum>"

    def test_torch_save_is_refused(self, sums, tmp_path):
        with pytest.raises(SealedValueError):
            torch.save({"sums": sums}, tmp_path / "sums.pt")


@pytest.mark.parametrize(("size", "world"), [(501, 2), (10, 4), (3, 4), (8, 4), (1, 2)])
def test_padding_is_masked_on_every_rank(size, world):
    """A padded sampler gives rank r the examples r, r + world, ..., wrapping around at the end."""
    share = -(-size // world)
    padded = [i % size for i in range(share * world)]
    seen = []
    for rank in range(world):
        sums = th.BoundedMean(0, size).accumulator(1, size=size, rank=rank, world=world)
        for index in padded[rank::world]:
            before = sums._kept
            sums.update(torch.tensor([float(index)]))
            if sums._kept > before:
                seen.append(index)
        assert sums._seen == share
    assert sorted(seen) == list(range(size))


class TestRanges:
    """Bounds that floats cannot tell apart are refused; all others give finite answers."""

    @pytest.mark.parametrize(
        ("low", "high"),
        [
            (1.0, 1.0 + 1e-16), (1.0, 1.0 + 3e-16), (0.0, 1e-320), (-1e-320, 1e-320), (0, 5e-324),
            (1e16, 1e16 + 2), (1e-310, 1e-301), (-1e308, 1e308), (-1e300, -1e300 * (1 - 1e-12)),
        ],
    )  # fmt: skip
    def test_too_narrow_or_too_wide(self, low, high):
        with pytest.raises(InvalidArgumentError, match="Expected `"):
            th.BoundedMean(low, high)
        with pytest.raises(InvalidArgumentError, match="Expected `"):
            th.Blockwise(torch.mean, 5, low, high)

    @pytest.mark.parametrize(
        ("low", "high"),
        [(0.0, 1e308), (-8e307, 8e307), (0.0, 1e-299), (1e6, 1e6 + 0.5), (-1e-300, 1e300)],
    )
    @pytest.mark.parametrize(
        "rule",
        [th.Ladder(step=0.01), th.LaplaceMechanism(epsilon=0.5), th.GaussianMechanism(sigma=1)],
    )
    def test_extreme_bounds_give_finite_answers(self, low, high, rule):
        holdout = th.ReusableHoldout(
            "memory://", name="val", size=20, statistics={"a": th.BoundedMean(low, high)},
            mechanism=rule, budget=5, delta=1e-6,
        )  # fmt: skip
        for part in (0.0, 0.3, 1.0):
            sums = holdout.accumulator("a")
            value = low + (high - low) * part
            sums.update(torch.full((20,), value, dtype=torch.float64))
            answer = holdout.release("a", sums, query=str(part))
            assert low <= answer.value <= high
            interval = holdout.interval(answer)
            assert low <= interval.low <= interval.high <= high
        assert "nan" not in f"{holdout.status()} {holdout.certificate()}"
