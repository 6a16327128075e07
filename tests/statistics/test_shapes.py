"""Accuracy of single scores and several labels, cross-entropy of pixels and tokens."""

import copy
import math
import pickle

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch_holdout.errors import InvalidArgumentError

EXACT = th.Ladder(step=0.0)
LOGITS = torch.tensor([2.0, -1.0, 0.5, -0.5, float("nan"), float("nan")])
TARGET = torch.tensor([1, 0, 0, 1, 0, 1])  # right, right, wrong, wrong, and two that are no answer


def value(statistic, *arguments):
    """The mean that an account publishes."""
    holdout = th.ReusableHoldout(
        "memory://", name="val", size=len(arguments[0]), statistics={"m": statistic},
        mechanism=EXACT, budget=1, grid=2**20,
    )  # fmt: skip
    sums = holdout.accumulator("m")
    sums.update(*arguments)
    return holdout.release("m", sums, query="w").value


class TestSingleScores:
    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.uint8])
    @pytest.mark.parametrize("shapes", ["[B] [B]", "[B, 1] [B]", "[B, 1] [B, 1]"])
    def test_a_logit_above_0_predicts_1_and_nan_is_wrong(self, dtype, shapes):
        logits = LOGITS if shapes.startswith("[B] ") else LOGITS[:, None]
        target = TARGET.to(dtype)
        target = target[:, None] if shapes.endswith("1]") else target
        assert value(th.ZeroOne(), logits, target) == pytest.approx(2 / 6, abs=1e-5)

    def test_probabilities_need_their_threshold(self):
        chances = LOGITS.sigmoid()
        assert value(th.ZeroOne(threshold=0.5), chances, TARGET) == pytest.approx(2 / 6, abs=1e-5)
        none = torch.zeros(6)
        assert value(th.ZeroOne(threshold=0.5), chances, none) == pytest.approx(2 / 6, abs=1e-5)
        assert value(th.ZeroOne(), chances, none) == 0.0  # every probability is above 0

    def test_a_soft_target_is_no_class(self):
        assert value(th.ZeroOne(), torch.tensor([3.0, -3.0]), torch.tensor([0.7, 0.3])) == 0.0

    def test_classes_in_a_column(self):
        classes = torch.tensor([[1], [4], [2]])
        for target in (torch.tensor([1, 4, 0]), torch.tensor([[1], [4], [0]])):
            assert value(th.ZeroOne(), classes, target) == pytest.approx(2 / 3, abs=1e-5)

    def test_what_would_be_broadcast_is_refused(self):
        for preds, target in (
            (torch.rand(4), torch.ones(4, 1)),
            (torch.rand(4, 1), torch.ones(4, 4)),
            (torch.rand(4), torch.ones(())),
            (torch.rand(4, 2, 2), torch.ones(4, 2, 2)),
        ):
            with pytest.raises(InvalidArgumentError, match="Expected"):
                th.ZeroOne().accumulator(1).update(preds, target)


class TestSeveralLabels:
    PREDS = torch.tensor([[2.0, -1.0, 3.0], [1.0, 1.0, 1.0], [-1.0, float("nan"), -1.0]])
    TARGET = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 0, 0]])

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
    def test_an_example_is_right_if_all_its_labels_are(self, dtype):
        found = value(th.ZeroOne(), self.PREDS, self.TARGET.to(dtype))
        assert found == pytest.approx(1 / 3, abs=1e-5)

    def test_labels_instead_of_logits(self):
        found = value(th.ZeroOne(), self.PREDS.nan_to_num(-1) > 0, self.TARGET.bool())
        assert found == pytest.approx(2 / 3, abs=1e-5)


class TestWhatStays:
    def test_accuracy_is_found_again(self):
        assert th.ZeroOne().source() == "zero_one"
        assert repr(th.ZeroOne()) == "ZeroOne()"
        assert set(th.ZeroOne().identity()) == {"kind", "low", "high", "mode"}
        assert th.ZeroOne(threshold=0.5).source() != "zero_one"
        assert th.ZeroOne() != th.ZeroOne(threshold=0.5)
        again = pickle.loads(pickle.dumps(th.ZeroOne(threshold=0.5)))
        assert again == th.ZeroOne(threshold=0.5)
        with pytest.raises(InvalidArgumentError, match="`threshold`"):
            th.ZeroOne(threshold=float("nan"))

    def test_cross_entropy_is_found_again(self):
        assert th.CrossEntropy(5.0).source() == "cross_entropy"
        assert repr(th.CrossEntropy(5.0)) == "CrossEntropy(5.0)"
        assert th.CrossEntropy(5.0).__reduce__() == (th.CrossEntropy, (5.0,))
        assert th.CrossEntropy(5.0).identity() == th.BoundedMean(0.0, 5.0).identity()

    def test_an_ignored_class_without_reduce_counts_as_0_as_torch_has_it(self):
        target = torch.tensor([0, -100])
        found = value(th.CrossEntropy(5.0), torch.zeros(2, 4), target)
        assert found == pytest.approx(math.log(4) / 2, abs=1e-4)


class TestManyTargets:
    def losses(self, logits, target, ignored=-100):
        losses = functional.cross_entropy(logits, target, ignore_index=ignored, reduction="none")
        counted = (target != ignored).flatten(1).sum(1)
        return losses.flatten(1).sum(1) / counted

    @pytest.mark.parametrize("shape", [(5, 3, 4, 6), (5, 3, 7)])
    def test_the_mean_over_what_is_not_ignored_of_each_example(self, shape):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(shape, generator=generator)
        target = torch.randint(3, (shape[0], *shape[2:]), generator=generator)
        target[torch.rand(target.shape, generator=generator) < 0.3] = -100
        found = value(th.CrossEntropy(9.0, reduce="mean"), logits, target)
        assert found == pytest.approx(float(self.losses(logits, target).mean()), abs=1e-4)

    def test_tokens_with_the_classes_last(self):
        logits = torch.randn(4, 7, 30, generator=torch.Generator().manual_seed(1))
        target = torch.arange(28).view(4, 7)
        last = th.CrossEntropy(9.0, reduce="mean", class_dim=-1)
        expected = self.losses(logits.movedim(-1, 1), target)
        assert value(last, logits, target) == pytest.approx(float(expected.mean()), abs=1e-4)
        with pytest.raises(InvalidArgumentError, match="class_dim=-1"):
            value(th.CrossEntropy(9.0, reduce="mean"), logits, target)

    def test_an_example_with_nothing_left_counts_as_the_worse_bound(self):
        target = torch.tensor([[0, 1], [-100, -100]])
        found = value(th.CrossEntropy(6.0, reduce="mean"), torch.zeros(2, 4, 2), target)
        assert found == pytest.approx((math.log(4) + 6) / 2, abs=1e-4)
        alone = value(th.CrossEntropy(6.0, reduce="mean"), torch.zeros(2, 4), target[:, 0])
        assert alone == pytest.approx((math.log(4) + 6) / 2, abs=1e-4)

    def test_another_index_is_ignored(self):
        target = torch.tensor([[0, 3], [3, 1]])
        statistic = th.CrossEntropy(6.0, reduce="mean", ignore_index=3)
        logits = torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(2))
        expected = self.losses(logits, target, ignored=3)
        assert value(statistic, logits, target) == pytest.approx(float(expected.mean()), abs=1e-4)

    def test_half_precision_and_probabilities(self):
        logits = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(3))
        target = torch.zeros(3, 5, dtype=torch.int64)
        statistic = th.CrossEntropy(9.0, reduce="mean")
        assert value(statistic, logits.bfloat16(), target) == pytest.approx(
            value(statistic, logits.bfloat16().float(), target), abs=1e-5
        )
        soft = functional.one_hot(target, 4).movedim(-1, 1).float()
        assert value(statistic, logits, soft) == pytest.approx(
            value(statistic, logits, target), abs=1e-5
        )

    def test_without_reduce_it_is_refused_as_before(self):
        with pytest.raises(InvalidArgumentError, match=r"values.flatten\(1\).mean\(1\)"):
            value(th.CrossEntropy(5.0), torch.zeros(2, 3, 4), torch.zeros(2, 4).long())

    def test_settings_name_the_query_and_survive_a_pickle(self):
        usual = th.CrossEntropy(5.0)
        others = [
            th.CrossEntropy(5.0, reduce="mean"),
            th.CrossEntropy(5.0, reduce="mean", ignore_index=0),
            th.CrossEntropy(5.0, reduce="mean", class_dim=-1),
        ]
        assert len({each.source() for each in (usual, *others)}) == 4
        assert repr(others[1]) == "CrossEntropy(5.0, reduce='mean', ignore_index=0)"
        for each in others:
            assert pickle.loads(pickle.dumps(each)) == each != usual
            assert copy.deepcopy(each) == each

    @pytest.mark.parametrize(
        "options",
        [{"reduce": "sum"}, {"ignore_index": 0.5}, {"class_dim": 2}, {"class_dim": "last"}],
    )
    def test_other_settings_are_refused(self, options):
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            th.CrossEntropy(5.0, **options)
