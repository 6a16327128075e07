"""A metric is tried on made-up rows first: what can never work is refused before a charge."""

import warnings

import pytest
import torch
import torch_holdout as th
import torchmetrics
from sklearn import metrics as sk
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.statistics.made_up import _NOT_ABOUT_VALUES
from torchmetrics import classification as tc
from torchmetrics import regression as tr

from support.builders.guarded import NAMESPACES, fit, guard_class, network, trainer

SIZE = 120
GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(SIZE) % 2
CLASSES = torch.arange(SIZE) % 5
PROBABILITIES = torch.rand(SIZE, generator=GENERATOR)
SOFTMAX = torch.rand(SIZE, 5, generator=GENERATOR).softmax(1)
LOGITS = torch.randn(SIZE, 5, generator=GENERATOR)
BITS = torch.randint(2, (SIZE, 4), generator=GENERATOR)
PIXELS = torch.randint(3, (SIZE, 6, 6), generator=GENERATOR)
MAPS = torch.randn(SIZE, 3, 6, 6, generator=GENERATOR)


def account(metric, **changes):
    statistic = th.Blockwise(metric, blocks=6, low=0.0, high=1.0)
    arguments = {
        "name": "val", "size": SIZE, "statistics": {"m": statistic}, "budget": 5,
        "mechanism": th.Ladder(step=0.0), "grid": 2**16,
    }  # fmt: skip
    return th.ReusableHoldout("memory://", **{**arguments, **changes})


def asked(holdout, *columns):
    sums = holdout.accumulator("m")
    for part in zip(*(column.split(50) for column in columns), strict=True):
        sums.update(*part)
    return holdout.release("m", sums, query="w").value


def arrays(metric, **options):
    return lambda p, t: metric(t.cpu().numpy(), p.cpu().numpy(), **options)


def with_float_targets(preds, target):
    return tc.BinaryAUROC()(preds, target.int())


def retrieval(preds, target, indexes):
    return torchmetrics.retrieval.RetrievalMAP()(preds, target, indexes=indexes)


ORDINARY = {
    "auroc": (tc.BinaryAUROC(), PROBABILITIES, LABELS),
    "auroc of logits": (tc.BinaryAUROC(), LOGITS[:, 0], LABELS),
    "auroc of half": (tc.BinaryAUROC(), PROBABILITIES.half(), LABELS),
    "auroc of float targets": (with_float_targets, PROBABILITIES, LABELS.float()),
    "f1": (tc.BinaryF1Score(), PROBABILITIES, LABELS),
    "f1 of classes": (tc.BinaryF1Score(), LABELS.flip(0), LABELS),
    "average precision": (tc.BinaryAveragePrecision(), PROBABILITIES, LABELS.bool()),
    "matthews": (tc.BinaryMatthewsCorrCoef(), PROBABILITIES, LABELS),
    "calibration": (tc.BinaryCalibrationError(), PROBABILITIES, LABELS),
    "multiclass f1": (tc.MulticlassF1Score(5), SOFTMAX, CLASSES),
    "multiclass auroc": (tc.MulticlassAUROC(5), SOFTMAX, CLASSES),
    "multiclass auroc of logits": (tc.MulticlassAUROC(5), LOGITS, CLASSES),
    "multiclass accuracy of classes": (tc.MulticlassAccuracy(5), CLASSES.flip(0), CLASSES),
    "kappa": (tc.MulticlassCohenKappa(5), LOGITS, CLASSES),
    "multilabel": (tc.MultilabelF1Score(4), BITS.float(), BITS),
    "multilabel ranking": (tc.MultilabelRankingAveragePrecision(4), BITS.float(), BITS),
    "segmentation": (tc.MulticlassJaccardIndex(3), MAPS, PIXELS),
    "r2": (tr.R2Score(), PROBABILITIES, LOGITS[:, 1]),
    "pearson": (tr.PearsonCorrCoef(), PROBABILITIES, LOGITS[:, 1]),
    "log error": (tr.MeanSquaredLogError(), PROBABILITIES, PROBABILITIES.flip(0)),
    "divergence": (tr.KLDivergence(), SOFTMAX, SOFTMAX.flip(0)),
    "explained variance": (tr.ExplainedVariance(), PROBABILITIES, LOGITS[:, 1]),
    "retrieval": (retrieval, PROBABILITIES, LABELS, CLASSES // 2),
    "sklearn auroc": (arrays(sk.roc_auc_score), PROBABILITIES, LABELS),
    "sklearn auroc of many": (arrays(sk.roc_auc_score, multi_class="ovr"), SOFTMAX, CLASSES),
    "sklearn f1": (arrays(sk.f1_score, average="macro"), CLASSES.flip(0), CLASSES),
    "sklearn log loss": (arrays(sk.log_loss, labels=range(5)), SOFTMAX.double(), CLASSES),
    "sklearn average precision": (arrays(sk.average_precision_score), PROBABILITIES, LABELS),
    "a function": (lambda p, t: (p[t == 1] > 0.5).float().mean(), PROBABILITIES, LABELS),
    "a python number": (lambda p: float(p.std()), PROBABILITIES),
    "an array": (lambda p: p.numpy().std(), PROBABILITIES),
    "signs": (lambda p, t: sk.hinge_loss(t.numpy(), p.numpy()), PROBABILITIES, 2 * LABELS - 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_metric_is_not_refused_and_not_warned_of(name):
    """``filterwarnings = error`` stands: a warning would be an error."""
    metric, *columns = ORDINARY[name]
    assert asked(account(metric), *columns) >= 0


def typo(preds, target):
    return preds.argmaxx(1) == target


def misspelt(preds, target):
    return torch.mean(predz)  # noqa: F821


HOPELESS = {
    "vector": (lambda p, t: p[:3], "gave several"),
    "per class": (tc.MulticlassF1Score(5, average=None), "gave several"),
    "matrix": (tc.MulticlassConfusionMatrix(5), "gave several"),
    "sklearn matrix": (arrays(lambda t, p: sk.confusion_matrix(t, p.argmax(1))), "gave several"),
    "curve": (tc.MulticlassROC(5), "gave tuple"),
    "collection": (torchmetrics.MetricCollection([tc.MulticlassF1Score(5)]), "gave dict"),
    "nothing": (lambda p, t: None, "gave NoneType"),
    "text": (lambda p, t: "0.7 percent", "gave str"),
    "attribute": (typo, "raised AttributeError in typo, line"),
    "name": (misspelt, "raised NameError in misspelt, line"),
    "too few": (lambda p: 0.5, "raised TypeError"),
    "too many": (lambda p, t, weights: 0.5, "raised TypeError"),
    "metric's arguments": (tc.MulticlassF1Score(5).update, "gave NoneType"),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_what_can_never_work_is_refused_before_a_charge(name):
    metric, came = HOPELESS[name]
    holdout = account(metric)
    sums = holdout.accumulator("m")
    with pytest.raises(InvalidArgumentError, match=came) as caught:
        sums.update(SOFTMAX, CLASSES)
    assert "Nothing was charged" in str(caught.value)
    assert holdout.status().queries == 0
    with pytest.raises(InvalidArgumentError):  # not only the first time
        sums.update(SOFTMAX, CLASSES)


def test_a_metric_that_fails_on_all_made_up_values_is_said_and_not_refused():
    def ratings(preds, target):
        if set(target.tolist()) - {10, 20, 30}:
            raise ValueError(f"unknown ratings in {target.tolist()}")
        return 0.75

    holdout = account(ratings)
    with pytest.warns(HoldoutWarning, match="raised ValueError in ratings") as caught:
        found = asked(holdout, PROBABILITIES, 10 * (CLASSES % 3) + 10)
    assert found == pytest.approx(0.75, abs=1e-4)
    assert len(caught) == 1  # said once
    assert "unknown ratings" not in str(caught[0].message)


def test_a_deprecation_is_no_failure():
    def old(preds, target):
        warnings.warn("use new()", DeprecationWarning, stacklevel=1)
        warnings.warn("undefined names will be removed", FutureWarning, stacklevel=1)
        return 0.75

    assert asked(account(old), PROBABILITIES, LABELS) == pytest.approx(0.75, abs=1e-4)


def test_made_up_rows_do_not_depend_on_the_holdout_and_come_once():
    seen = []

    def metric(preds, target):
        seen.append((preds.clone(), target.clone()))
        return 0.5

    for preds in (PROBABILITIES, 1 - PROBABILITIES):
        holdout = account(metric)
        for _ in range(2):
            holdout.accumulator("m").update(preds, LABELS)
    first, second = seen  # one for each holdout
    assert torch.equal(first[0], second[0])
    assert first[0].shape == (SIZE // 6,)
    assert (first[0].dtype, first[1].dtype) == (torch.float32, torch.int64)
    assert not torch.isin(first[0], PROBABILITIES).any()


def test_the_users_random_numbers_are_as_before():
    drawing = account(lambda p, t: float(torch.rand(())))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    drawing.accumulator("m").update(PROBABILITIES, LABELS)
    assert torch.equal(torch.rand(4), expected)


def test_a_statistic_that_was_tried_can_be_pickled():
    import pickle

    statistic = th.Blockwise(tc.BinaryAUROC(), 6, 0.0, 1.0)
    statistic.accumulator(4, size=SIZE).update(PROBABILITIES, LABELS)
    assert "_tried" not in vars(pickle.loads(pickle.dumps(statistic)))


def test_errors_of_values_are_not_among_those_that_refuse():
    for kind in (ValueError, RuntimeError, IndexError, KeyError, ZeroDivisionError, AssertionError):
        assert not issubclass(kind, _NOT_ABOUT_VALUES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_guarded_fit_ends_in_the_sanity_check(namespace):
    steps = []

    def training_step(self, batch, _):
        steps.append(1)
        return self(batch[0]).sum()

    holdout = account(tc.MulticlassF1Score(3, average=None), size=97)
    net = network(
        namespace,
        validation_step=lambda self, batch, _: {"m": (self(batch[0]), batch[1])},
        training_step=training_step,
    )
    with pytest.raises(InvalidArgumentError, match="gave several"):
        fit(trainer([guard_class(namespace)(holdout)], namespace), net)
    assert steps == []
    assert holdout.status().queries == 0
