"""Private multiplicative weights: most of very many queries are free."""

import pickle

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError

SKEWED = torch.tensor([400, 250, 150, 90, 50, 30, 20, 10])


def asked(**changes):
    arguments = {
        "name": "people", "histogram": SKEWED, "threshold": 0.05, "sigma": 0.0, "updates": 200,
    }  # fmt: skip
    return th.MultiplicativeWeights("memory://", **{**arguments, **changes})


def truth(query, histogram=SKEWED):
    return float((histogram * query).sum() / histogram.sum())


def test_most_of_ten_thousand_adaptive_queries_are_free():
    """The analyst follows the answers; releases stay below ln X / (2 (T - noise)^2)."""
    size, universe, generator = 20_000, 64, torch.Generator().manual_seed(0)
    histogram = torch.bincount(
        (torch.randn(size, generator=generator).abs() * 16).long().clamp(0, universe - 1),
        minlength=universe,
    )
    weights = asked(histogram=histogram, threshold=0.05, sigma=0.0005, updates=400, seed=1)
    kinds = {"guess": 0, "release": 0}
    direction = torch.zeros(universe)
    for _ in range(10_000):
        noise = torch.randn(universe, generator=generator)
        query = ((direction + noise) > 0).double()
        answer = weights.ask(query)
        if answer.kind == "repeat":
            continue
        kinds[answer.kind] += 1
        error = abs(answer.value - truth(query, histogram))
        assert error <= 0.05 + 0.02  # the threshold and its noise
        direction = 0.9 * direction + (answer.value - 0.5) * noise
    assert sum(kinds.values()) > 9_900
    assert kinds["guess"] > 0.97 * sum(kinds.values())
    assert weights.status().releases == kinds["release"] < 300


def test_it_learns_the_histogram():
    weights, generator = asked(threshold=0.02, updates=500), torch.Generator().manual_seed(1)
    before = float((weights.hypothesis - SKEWED / SKEWED.sum()).abs().sum())
    for _ in range(300):
        weights.ask((torch.rand(8, generator=generator) > 0.5).double())
    after = float((weights.hypothesis - SKEWED / SKEWED.sum()).abs().sum())
    assert after < before / 3
    assert float(weights.hypothesis.sum()) == pytest.approx(1)


def test_without_learning_it_pays_again_and_again():
    """Negative control: a hypothesis that never moves releases on most queries."""
    taught, untaught = asked(), asked(learning_rate=0.0)
    for weights in (taught, untaught):
        generator = torch.Generator().manual_seed(3)
        for _ in range(150):
            weights.ask((torch.rand(8, generator=generator) > 0.5).double())
    assert untaught.status().releases > 2 * taught.status().releases


def test_counted_sums_are_the_same_integers_as_examples_one_by_one():
    holdout = th.ReusableHoldout(
        "memory://", name="val", size=int(SKEWED.sum()), budget=5, grid=2**20,
        statistics={"query": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Thresholdout(threshold=0.1, sigma=0.0, guess="last"),
    )  # fmt: skip
    query = torch.rand(8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one_by_one = holdout.accumulator("query")
    one_by_one.update(query.repeat_interleave(SKEWED))
    counted = holdout.accumulator("query")
    counted.update_counted(query, SKEWED, int(SKEWED.sum()))
    values = [
        holdout.release("query", sums, query=name, fresh=True).value
        for name, sums in (("a", one_by_one), ("b", counted))
    ]
    assert values[0] == values[1] == pytest.approx(truth(query), abs=1e-5)


def test_repeats_are_free_and_exhaustion_is_final():
    weights = asked(threshold=0.01, updates=1)
    query = torch.eye(8)[0]
    first = weights.ask(query)
    assert first.kind == "release"
    again = weights.ask(query)
    assert (again.kind, again.value) == ("repeat", first.value)
    assert weights.ask(torch.eye(8)[1]).kind == "exhausted"
    assert weights.status().budget_left == 0


def test_the_hypothesis_moves_only_with_releases():
    weights = asked(threshold=0.3)
    weights.ask(torch.full((8,), 0.5))
    assert torch.equal(weights.hypothesis, torch.full((8,), 1 / 8, dtype=torch.float64))


def test_two_handles_share_one_budget(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    facts = {"name": "p", "histogram": SKEWED, "threshold": 0.01, "sigma": 0.001, "updates": 3}
    one, two = (th.MultiplicativeWeights(url, **facts) for _ in range(2))
    one.ask(torch.eye(8)[0])
    two.ask(torch.eye(8)[1])
    assert one.status() == two.status()
    assert one.status().releases == 2
    assert "epsilon" in str(one.status())
    assert one.certificate().tolerance > 0


def test_the_histogram_is_not_shown():
    weights = asked()
    assert "400" not in repr(weights)
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError, th.HoldoutError)):
        pickle.loads(pickle.dumps(weights))._counts.tolist()


@pytest.mark.parametrize(
    "histogram",
    [
        *(torch.tensor([1.0, 2.0]), torch.tensor([3]), torch.tensor([[1, 2]])),
        *(torch.tensor([-1, 2]), torch.tensor([0, 0]), [1, 2], None),
    ],
)
def test_bad_histograms(histogram):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        asked(histogram=histogram)


@pytest.mark.parametrize(
    "query", [torch.zeros(7), torch.full((8,), 1.5), torch.full((8,), float("nan")), [0.5] * 8]
)
def test_bad_queries(query):
    weights = asked()
    with pytest.raises(InvalidArgumentError, match="Expected"):
        weights.ask(query)
    assert weights.status().queries == 0
