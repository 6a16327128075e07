"""Means of batches: one batch moves the sum by at most the resolution, exactly."""

import math
import pickle
import random
from fractions import Fraction

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError, PartialPassError
from torch_holdout.ledger.registration import StoredStatistic

from support.builders.holdouts import make_holdout

LEVELS = 64
SHAPES = [(100, 10), (103, 10), (19, 10), (20, 10), (7, 3), (1020, 50), (11, 1), (64, 63)]


def settled(statistic, size, means):
    """The total that the door works with, from the mean of each batch."""
    sums = statistic.accumulator(LEVELS, size=size)
    for mean in means:
        sums.update(torch.tensor(mean), statistic._expected(size, sums._seen))
    return statistic.settled(int(sums._sealed), size, LEVELS)


def batches(size, batch):
    return [min(batch, size - start) for start in range(0, size, batch)]


@pytest.mark.parametrize(("size", "batch"), [s for s in SHAPES if s[0] // s[1] > 1])
def test_one_replaced_batch_moves_the_total_by_at_most_the_resolution(size, batch):
    draw = random.Random(size)
    statistic = th.LoggedMean(0.0, 1.0, batch_size=batch)
    number = len(batches(size, batch))
    largest = 0
    for _ in range(20):
        means = [draw.choice([0.0, 1.0, draw.random()]) for _ in range(number)]
        before = settled(statistic, size, means)
        assert 0 <= before <= LEVELS * statistic.units(size)
        for place in range(number):
            moved = [
                settled(statistic, size, [*means[:place], to, *means[place + 1 :]])
                for to in (0.0, 1.0)
            ]
            largest = max(largest, max(moved) - min(moved))
    assert largest <= LEVELS
    assert largest >= LEVELS * batch * statistic.units(size) // size  # no noise is wasted


def test_a_twin_that_takes_each_batch_for_a_unit_is_caught():
    """103 examples are 11 batches; as 11 units the large ones would move the mean too far."""
    sizes, units = batches(103, 10), 11
    most = max(Fraction(n * LEVELS * units, 103) for n in sizes)
    assert most > LEVELS
    assert th.LoggedMean(0.0, 1.0, batch_size=10).units(103) == 10


@pytest.mark.parametrize(("size", "batch"), [s for s in SHAPES if s[0] // s[1] > 1])
def test_both_roundings_together_stay_within_half_a_level(size, batch):
    draw = random.Random(1)
    statistic = th.LoggedMean(0.0, 1.0, batch_size=batch)
    sizes = batches(size, batch)
    for _ in range(50):
        means = [draw.randrange(2**20) / 2**20 for _ in sizes]
        exact = Fraction(0)
        for mean, n in zip(means, sizes, strict=True):
            exact += Fraction(mean) * n / size
        total = settled(statistic, size, means)
        assert abs(Fraction(total, LEVELS * statistic.units(size)) - exact) <= Fraction(
            1, 2 * LEVELS
        )


@pytest.mark.parametrize(("size", "batch"), [(103, 10), (19, 6), (7, 3)])
def test_weighted_batches_obey_the_bounds_of_that_many_units(size, batch):
    """The generating function of the sum is below that of a binomial sum of u units, both ways."""
    draw = random.Random(2)
    units = th.LoggedMean(0.0, 1.0, batch_size=batch).units(size)
    weights = [units * n / size for n in batches(size, batch)]
    assert max(weights) <= 1
    for _ in range(200):
        means = [draw.random() for _ in weights]
        average = math.fsum(w * m for w, m in zip(weights, means, strict=True)) / units
        for rate in (-8.0, -1.0, -0.1, 0.1, 1.0, 8.0):
            ours = math.fsum(
                math.log1p(m * math.expm1(rate * w)) for w, m in zip(weights, means, strict=True)
            )
            assert ours <= units * math.log1p(average * math.expm1(rate)) + 1e-12


def test_means_are_clipped_and_what_is_not_finite_is_the_worse_bound():
    loss = th.LoggedMean(0.0, 4.0, batch_size=5)
    top = LEVELS * loss.units(10)
    assert settled(loss, 10, [9.0, math.nan]) == settled(loss, 10, [4.0, math.inf]) == top
    assert settled(loss, 10, [-3.0, 0.0]) == 0
    gain = th.LoggedMean(0.0, 4.0, mode="max", batch_size=5)
    assert settled(gain, 10, [math.nan, math.inf]) == 0


def test_batches_of_another_size_are_refused():
    sums = th.LoggedMean(0.0, 1.0, batch_size=5).accumulator(LEVELS, size=13)
    sums.update(torch.tensor(0.5), 5)
    for wrong in (4, 6, 3):
        with pytest.raises(PartialPassError, match="batches of 5"):
            sums.update(torch.tensor(0.5), wrong)
    sums.update(torch.tensor(0.5), 5)
    sums.update(torch.tensor(0.5), 3)
    with pytest.raises(PartialPassError):
        sums.update(torch.tensor(0.5), 5)


@pytest.mark.parametrize("arguments", [
    (), (0.5,), (torch.zeros(3), 5), (0.5, 5, 1), ("0.5", 5), (0.5, 0), (0.5, 2.5),
    (torch.zeros(1, dtype=torch.complex64), 5), (torch.zeros(1).to_sparse(), 5),
])  # fmt: skip
def test_an_update_takes_one_number_and_a_size(arguments):
    for statistic in (
        th.LoggedMean(0.0, 1.0, batch_size=5),
        th.LoggedMean(0.0, 1.0, kind="zero_one"),
    ):
        with pytest.raises(InvalidArgumentError):
            statistic.accumulator(LEVELS, size=10).update(*arguments)


@pytest.mark.parametrize("arguments", [
    {"low": 0.0, "high": 1.0},
    {"low": 0.0, "high": 1.0, "batch_size": 0},
    {"low": 0.0, "high": 1.0, "batch_size": 2.5},
    {"low": 0.0, "high": 1.0, "batch_size": 5, "kind": "sum"},
    {"low": 0.0, "high": 1.0, "batch_size": 5, "ranks": 0},
    {"low": 0.0, "high": 100.0, "kind": "zero_one"},
    {"low": 0.0, "high": 1.0, "kind": "zero_one", "batch_size": 5},
    {"low": 0.0, "high": 1.0, "kind": "zero_one", "ranks": 2},
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(arguments):
    with pytest.raises(InvalidArgumentError):
        th.LoggedMean(**arguments)


@pytest.mark.parametrize(("size", "options"), [(10, {"batch_size": 6}), (10, {"batch_size": 50}),
                                               (11, {"batch_size": 2, "ranks": 2})])  # fmt: skip
def test_a_size_that_gives_no_units_is_refused(size, options):
    with pytest.raises(InvalidArgumentError):
        make_holdout(size=size, statistics={"val_loss": th.LoggedMean(0.0, 1.0, **options)},
                     mechanism=th.Ladder(step=0.1), budget=1)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_zero_one_counts_the_right_examples_of_each_batch(dtype):
    statistic = th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one")
    right = 0
    sums = statistic.accumulator(LEVELS, size=4000)
    for examples in (1, 2, 7, 50, 63):
        for correct in range(0, examples + 1, max(1, examples // 7)):
            mean = torch.tensor(correct / examples, dtype=dtype)
            sums.update(mean, examples)
            right += correct
    assert int(sums._sealed) == LEVELS * right
    assert int(sums._squares) == LEVELS**2 * right  # values 0 and 1 only


def test_zero_one_rounds_what_is_no_whole_number_and_refuses_by_type_only():
    statistic = th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one")
    sums = statistic.accumulator(1, size=40)
    for mean in (0.549, math.nan, 7.0, -1.0):
        sums.update(torch.tensor(mean), 10)
    assert int(sums._sealed) == 5 + 0 + 10 + 0
    for value in (0.0, 0.5):
        with pytest.raises(InvalidArgumentError, match="bfloat16"):
            sums.update(torch.tensor(value, dtype=torch.bfloat16), 100)


def account(**changes):
    facts = {"size": 103, "mechanism": th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")}
    facts |= {"budget": 20, "grid": 103 * 65536}
    facts["statistics"] = {"val_loss": th.LoggedMean(0.0, 2.0, batch_size=10)}
    return make_holdout(**{**facts, **changes})


def test_the_ledger_registers_batches_and_ranks(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    facts = {"name": "val", "size": 103, "mechanism": th.Ladder(step=0.1), "budget": 1}
    statistics = {"val_loss": th.LoggedMean(0.0, 2.0, batch_size=10)}
    stored = (
        th.ReusableHoldout.open(url, statistics=statistics, **facts).status().statistics["val_loss"]
    )
    assert (stored["kind"], stored["batch_size"], stored["ranks"], stored["units"]) == (
        "logged_mean", 10, 1, 10,
    )  # fmt: skip
    for other in (th.LoggedMean(0.0, 2.0, batch_size=11), th.BoundedMean(0.0, 2.0)):
        with pytest.raises(HoldoutMismatchError):
            th.ReusableHoldout.open(url, statistics={"val_loss": other}, **facts)


def test_other_batches_are_another_cut_and_zero_one_has_exact_intervals():
    def stored(statistic, size=103):
        return StoredStatistic(statistic.identity() | {"units": statistic.units(size)})

    ten, nine = (stored(th.LoggedMean(0.0, 2.0, batch_size=b), 20) for b in (10, 9))
    assert ten.units == nine.units
    assert ten.cut != nine.cut
    assert ten.interval_kind == "blocks"
    assert not ten.counts_examples
    two = stored(th.LoggedMean(0.0, 2.0, batch_size=5, ranks=2), 20)
    assert two.cut != stored(th.LoggedMean(0.0, 2.0, batch_size=5), 20).cut
    counted = stored(th.LoggedMean(0.0, 1.0, kind="zero_one"))
    assert counted.interval_kind == "zero_one"
    assert counted.cut == stored(th.BoundedMean(0.0, 1.0)).cut


def test_closing_shows_the_mean_of_the_batches():
    statistics = {
        "val_loss": th.LoggedMean(0.0, 2.0, batch_size=10),
        "val_acc": th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one"),
    }
    holdout = account(statistics=statistics)
    sums = {name: holdout.accumulator(name) for name in statistics}
    sizes = batches(103, 10)
    for number, n in enumerate(sizes):
        sums["val_loss"].update(torch.tensor(number / 8), n)
        sums["val_acc"].update(torch.tensor((n - 1) / n), n)
    answers = holdout.release_all(sums, query="weights")
    mean = sum(n * number / 8 for number, n in enumerate(sizes)) / 103
    assert answers["val_loss"].value == pytest.approx(mean, abs=1 / 65536)
    assert answers["val_acc"].value == pytest.approx(92 / 103, abs=1e-6)
    loss, accuracy = holdout.close().values
    assert loss.value == pytest.approx(mean, abs=1 / 65536)
    assert accuracy.value == pytest.approx(92 / 103, abs=1e-12)
    assert loss.low < mean < loss.high
    assert accuracy.high - accuracy.low < loss.high - loss.low


def test_the_certificate_says_what_it_is_about():
    said = str(account().certificate())
    assert "units of val_loss are batches of 10 examples" in said
    assert "privacy counts per batch" in said


def test_it_is_pickled_and_compared():
    statistic = th.LoggedMean(0.0, 2.0, batch_size=10, ranks=2)
    assert pickle.loads(pickle.dumps(statistic)) == statistic
    assert statistic != th.LoggedMean(0.0, 2.0, batch_size=10)
    assert statistic.batches(40) == 4
