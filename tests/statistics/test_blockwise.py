"""Metrics that are no means, behind the same door."""

import math
import warnings
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
import torch_holdout as th
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout.bounds.published import counting_anytime
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics import Statistic
from torchmetrics.classification import BinaryAUROC, BinaryF1Score
from torchmetrics.functional.classification import binary_auroc

EXACT = th.Ladder(step=0.0)


def scores(size=600, seed=0, rate=0.4):
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(size, generator=generator) < rate).long()
    return torch.sigmoid(target + torch.randn(size, generator=generator)), target


def account(metric=None, blocks=10, size=600, **changes):
    statistic = th.Blockwise(metric or BinaryAUROC(), blocks, 0.0, 1.0, **changes.pop("own", {}))
    arguments = {
        "name": "val", "size": size, "statistics": {"val_auroc": statistic}, "mechanism": EXACT,
        "budget": 5, "grid": 2**20,
    }  # fmt: skip
    return th.ReusableHoldout("memory://", **{**arguments, **changes})


def asked(holdout, preds, target, query="weights", batch=64, **options):
    sums = holdout.accumulator("val_auroc")
    for part in zip(preds.split(batch), target.split(batch), strict=True):
        sums.update(*part)
    return holdout.release("val_auroc", sums, query=query, **options)


def by_hand(preds, target, blocks=10, seed=0):
    order = fixed_permutation(len(preds), seed)
    parts = [binary_auroc(preds[b], target[b]) for b in order.tensor_split(blocks)]
    return float(torch.stack(parts).mean())


class TestValue:
    def test_is_the_mean_over_blocks(self):
        preds, target = scores()
        found = asked(account(), preds, target).value
        assert found == pytest.approx(by_hand(preds, target), abs=1e-4)

    def test_does_not_depend_on_batches(self):
        preds, target = scores()
        values = {asked(account(), preds, target, batch=b).value for b in (1, 64, 600)}
        assert len(values) == 1

    def test_a_label_sorted_set_is_no_trouble(self):
        """Contiguous blocks would have one class each; the permutation mixes them."""
        preds, target = scores(6000)
        order = target.argsort()
        found = asked(account(size=6000), preds[order], target[order]).value
        assert found == pytest.approx(float(binary_auroc(preds, target)), abs=0.02)

    def test_how_far_blocks_are_from_the_whole(self):
        """One in twenty is positive: blocks of 12 often have one class, and count as 0."""
        preds, target = scores(6000, rate=0.05)
        whole = float(binary_auroc(preds, target))
        by_blocks = {
            blocks: asked(account(size=6000, blocks=blocks), preds, target).value
            for blocks in (10, 100, 500)
        }
        assert abs(by_blocks[10] - whole) < 0.02
        assert by_blocks[500] < by_blocks[100] < by_blocks[10] + 0.05
        assert by_blocks[500] < 0.5 < whole

    def test_other_metrics_and_functions(self):
        preds, target = scores()
        assert 0 < asked(account(BinaryF1Score()), preds, target).value < 1
        recall = account(lambda p, t: (p[t == 1] > 0.5).float().mean())
        assert 0 < asked(recall, preds, target).value < 1


class TestDegenerate:
    @pytest.mark.parametrize(
        "metric",
        [
            lambda preds, target: 1 / 0,
            lambda preds, target: torch.tensor(float("nan")),
            lambda preds, target: torch.tensor(float("inf")),
            lambda preds, target: warnings.warn("only one class", stacklevel=1) or 0.7,
        ],
        ids=["raises", "nan", "inf", "warns"],
    )
    @pytest.mark.filterwarnings("ignore:Expected the metric")
    def test_counts_as_the_declared_constant(self, metric):
        preds, target = scores()
        assert asked(account(metric), preds, target).value == 0.0
        constant = account(metric, own={"degenerate": 0.25})
        assert asked(constant, preds, target).value == pytest.approx(0.25, abs=1e-5)

    def test_the_worse_bound_is_the_default(self):
        assert th.Blockwise(BinaryAUROC(), 5, 0.0, 1.0).degenerate == 0.0
        assert th.Blockwise(BinaryAUROC(), 5, 0.0, 2.0, mode="min").degenerate == 2.0

    def test_the_divisor_is_the_number_of_blocks(self):
        """Nine blocks of one class: a tenth of the one good block's value is left."""
        preds, target = scores(100)
        order = fixed_permutation(100, 0)
        target = torch.zeros(100, dtype=torch.long)
        first = order[:10]
        target[first[:5]], preds[first[:5]], preds[first[5:]] = 1, 0.9, 0.1
        found = asked(account(size=100), preds, target).value
        assert found == pytest.approx(0.1, abs=1e-4)

    def test_one_example_changes_one_block(self):
        preds, target = scores()
        base = by_hand(preds, target)
        for index in range(0, 600, 37):
            changed = preds.clone()
            changed[index] = 1 - changed[index]
            assert abs(by_hand(changed, target) - base) <= 1 / 10 + 1e-9


class TestOneExampleOneBlock:
    def test_a_reused_buffer_does_not_repeat_an_example(self):
        """Outputs that are overwritten in place (captured graphs) must be copied."""
        preds, target = scores()
        holdout, buffer = account(), torch.empty(60)
        sums = holdout.accumulator("val_auroc")
        for p, t in zip(preds.split(60), target.split(60), strict=True):
            sums.update(buffer.copy_(p), t)
        found = holdout.release("val_auroc", sums, query="w").value
        assert found == pytest.approx(by_hand(preds, target), abs=1e-4)

    def test_batches_of_another_shape_are_refused_where_they_are_added(self):
        sums = account().accumulator("val_auroc")
        sums.update(torch.rand(5), torch.ones(5))
        for batch in ((torch.rand(5, 2), torch.ones(5)), (torch.rand(5),)):
            with pytest.raises(InvalidArgumentError, match="as the first"):
                sums.update(*batch)

    def test_two_cuts_give_no_claim_by_privacy(self):
        from torch_holdout.holdout.reading import AccountReading

        for seeds, private in (((0, 0), True), ((0, 1), False)):
            statistics = {
                f"m{k}": th.Blockwise(BinaryAUROC(), 10, 0.0, 1.0, seed=seed)
                for k, seed in enumerate(seeds)
            }
            rule = th.Thresholdout(threshold=0.1, sigma=0.1, guess="last")
            holdout = account(statistics=statistics, mechanism=rule, grid=None)
            summary = holdout._ledger.summary(holdout._attached())
            reading = AccountReading(summary, holdout.address, rule)
            assert (reading.transcript.loss is not None) == private

    def test_counts_are_no_rows(self):
        sums = account().accumulator("val_auroc")
        with pytest.raises(InvalidArgumentError, match="Expected rows"):
            sums.update_counted(torch.rand(2), torch.tensor([300, 300]), 600)


class TestLeaks:
    def test_an_exception_that_quotes_targets_stays_inside(self, capfd):
        preds, target = scores()

        def talkative(preds, target):
            warnings.warn(f"targets were {target.tolist()}", stacklevel=1)
            raise ValueError(f"{preds.tolist()} {target.tolist()}")

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = asked(account(talkative), preds, target)
        assert answer.value == 0.0
        (only,) = caught  # of the dry run on made-up rows, which quotes nothing either
        assert only.category is th.HoldoutWarning
        assert "targets were" not in str(only.message)
        assert str(target.tolist()[:3])[1:-1] not in str(only.message)
        printed = "".join(capfd.readouterr())
        assert "targets" not in printed

    def test_rows_cannot_be_copied_or_shown(self):
        import copy
        import pickle

        holdout = account()
        sums = holdout.accumulator("val_auroc")
        preds, target = scores()
        sums.update(preds, target)
        assert repr(sums) == "<sealed sum>"
        for way_out in (copy.copy, copy.deepcopy, pickle.dumps, float):
            with pytest.raises(th.SealedValueError):
                way_out(sums)

    def test_a_partial_pass_asks_nothing(self):
        preds, target = scores()
        holdout = account()
        with pytest.raises(th.PartialPassError):
            asked(holdout, preds[:590], target[:590])
        assert holdout.status().queries == 0


class TestAccount:
    def test_a_block_is_a_unit(self):
        holdout = account(mechanism=th.Thresholdout(threshold=0.1, sigma=0.02, guess="last"))
        assert holdout.status().cost_per_release == {"val_auroc": pytest.approx(2 / (10 * 0.02))}
        preds, target = scores()
        asked(holdout, preds, target)
        assert holdout.status().statistics["val_auroc"]["units"] == 10
        assert holdout.certificate().tolerance > 0.3

    def test_fifty_blocks_certify_little(self):
        """The figures in the docstring: the first query, and a first release after 50 guesses."""
        holdout = account(blocks=50, mechanism=th.Ladder(step=0.1), grid=None)
        assert holdout.certificate().tolerance == pytest.approx(0.23, abs=0.01)
        later = counting_anytime(50, position=50, releases_before=0, answers=33, failure=0.025)
        assert later + 0.5 / 32 == pytest.approx(0.38, abs=0.02)

    def test_reopened_with_another_cut_is_refused(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        facts = {"name": "val", "size": 600, "mechanism": EXACT, "budget": 5}

        def opened(**changes):
            statistic = th.Blockwise(
                **{"metric": BinaryAUROC(), "blocks": 10, "low": 0, "high": 1} | changes
            )
            return th.ReusableHoldout(url, statistics={"a": statistic}, **facts).status()

        opened()
        for change in (
            {"blocks": 20},
            {"seed": 5},
            {"metric": BinaryF1Score()},
            {"degenerate": 0.5},
        ):
            with pytest.raises(th.HoldoutMismatchError):
                opened(**change)

    def test_another_threshold_of_the_metric_is_another_query(self):
        one = th.Blockwise(BinaryF1Score(threshold=0.5), 10, 0.0, 1.0).source()
        assert one != th.Blockwise(BinaryF1Score(threshold=0.7), 10, 0.0, 1.0).source()
        assert one == th.Blockwise(BinaryF1Score(threshold=0.5), 10, 0.0, 1.0).source()

    def test_beside_a_mean(self):
        """Units of 600 and 10 in one account: each has its own threshold and cost."""
        holdout = th.ReusableHoldout(
            "memory://", name="val", size=600, budget=6,
            statistics={"auroc": th.Blockwise(BinaryAUROC(), 10, 0.0, 1.0), "acc": th.ZeroOne()},
            mechanism=th.Thresholdout(threshold=0.05, sigma=0.05, guess="last"),
        )  # fmt: skip
        preds, target = scores()
        for number in range(3):
            sums = {name: holdout.accumulator(name) for name in holdout.statistics}
            sums["auroc"].update(preds, target)
            sums["acc"].update((preds > 0.5).long(), target)
            holdout.release_all(sums, query=f"epoch {number}")
        assert holdout.status().queries == 6
        assert holdout.status().epsilon == pytest.approx(12 / (10 * 0.05) + 1 / (600 * 0.05))

    def test_through_the_metric(self):
        preds, target = scores()
        metric = th.ReusableHoldoutMetric(account(), "val_auroc")
        metric.update(preds[:300], target[:300])
        metric.update(preds[300:], target[300:])
        assert float(metric.compute()) == pytest.approx(by_hand(preds, target), abs=1e-4)

    def test_train_guess_is_by_blocks_too(self):
        preds, target = scores()
        rule = th.Thresholdout(threshold=0.5, sigma=0.0, guess="train")
        holdout = account(mechanism=rule)
        guess = holdout.accumulator("val_auroc", role="guess")
        other = scores(200, seed=5)
        guess.update(*other)
        found = asked(holdout, preds, target, guess=guess)
        assert found.kind == "guess"
        assert found.value == pytest.approx(by_hand(*other), abs=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": 1}, {"blocks": 2.5}, {"metric": 3}, {"low": 1.0, "high": 0.0}, {"seed": -1},
        {"degenerate": 2.0}, {"degenerate": math.nan}, {"mode": "best"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments(change):
    values = {"metric": BinaryAUROC(), "blocks": 5, "low": 0.0, "high": 1.0}
    with pytest.raises(InvalidArgumentError):
        th.Blockwise(**{**values, **change})


def test_more_blocks_than_examples():
    with pytest.raises(InvalidArgumentError, match="at most 600 blocks"):
        account(blocks=601)


@pytest.mark.parametrize(
    "batch",
    [(), (torch.zeros(3), torch.zeros(4)), (torch.tensor(1.0),), (0.5, 1)],
)
def test_bad_batches(batch):
    sums = account().accumulator("val_auroc")
    with pytest.raises(InvalidArgumentError, match="batch first"):
        sums.update(*batch)


class TestAsAStatistic:
    """It is a statistic of its own, and says of itself what it always said."""

    STATISTIC = th.Blockwise(torch.nn.functional.l1_loss, 5, 0, 2, mode="min", seed=3)

    def test_is_no_bounded_mean(self):
        assert isinstance(self.STATISTIC, Statistic)
        assert not isinstance(self.STATISTIC, th.BoundedMean)
        assert (self.STATISTIC.needs_order, th.BoundedMean(0, 1).needs_order) == (True, False)

    def test_identity_and_repr(self):
        assert list(self.STATISTIC.identity().items()) == [
            ("kind", "blockwise"), ("low", 0.0), ("high", 2.0), ("mode", "min"),
            ("metric", "l1_loss"), ("blocks", 5), ("degenerate", 2.0), ("seed", 3),
        ]  # fmt: skip
        shown = repr(self.STATISTIC)
        assert shown.startswith("Blockwise(low=0.0, high=2.0, mode='min', metric=<function l1_loss")
        assert shown.endswith("blocks=5, degenerate=2.0, seed=3)")

    def test_equality_is_by_value(self):
        assert replace(self.STATISTIC) == self.STATISTIC
        assert replace(self.STATISTIC, seed=4) != self.STATISTIC
        assert hash(replace(self.STATISTIC)) == hash(self.STATISTIC)
        with pytest.raises(FrozenInstanceError):
            self.STATISTIC.seed = 4

    @pytest.mark.parametrize(
        ("low", "high", "mode", "message"),
        [
            (1.0, 1.0, "max", "`low` to be smaller than `high`"),
            (float("nan"), 1.0, "max", "`low`"),
            (-1.5e308, 1.5e308, "max", "finite"),
            (0.0, 1.0, "up", "`mode`"),
        ],
    )
    def test_bounds_are_checked(self, low, high, mode, message):
        with pytest.raises(InvalidArgumentError, match=message):
            th.Blockwise(torch.nn.functional.l1_loss, 5, low, high, mode=mode)
