"""Which warnings make a block degenerate: those of its own thread that say a value is undefined."""

import pickle
import threading
import warnings

import numpy as np
import pytest
import torch
import torch_holdout as th
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torch_holdout.statistics import undefined
from torch_holdout.statistics.undefined import heard_warnings, says_undefined
from torchmetrics.classification import BinaryAUROC

LEVELS = 2**16


def value_of(metric, *columns, blocks=4):
    """The mean over blocks, by a statistic whose degenerate value is 0."""
    statistic = th.Blockwise(metric, blocks, 0.0, 1.0)
    return statistic.total(columns, LEVELS) / (blocks * LEVELS)


def warning(text, category=UserWarning, value=1.0):
    """A metric that warns and gives a value."""

    def metric(*rows):
        warnings.warn(text, category, stacklevel=1)
        return value

    return metric


@pytest.mark.parametrize(
    ("category", "text", "counts"),
    [
        (UserWarning, "No positive samples in targets, true positive value is meaningless.", True),
        (UserWarning, "No negative samples in targets", True),
        (UserWarning, "Average precision score for one or more classes was `nan`. Ignoring", True),
        (UserWarning, "The variance of predictions or target is close to zero.", True),
        (UserWarning, "std(): degrees of freedom is <= 0.", True),
        (UserWarning, "Only one class is present in y_true", True),
        (RuntimeWarning, "invalid value encountered in divide", True),
        (RuntimeWarning, "divide by zero encountered in log", True),
        (RuntimeWarning, "Mean of empty slice.", True),
        (RuntimeWarning, "overflow encountered in exp", False),
        (UserWarning, "Metric `SpearmanCorrcoef` will save all targets and predictions", False),
        (UserWarning, "y_pred contains classes not in y_true", False),
        (DeprecationWarning, "undefined behaviour is deprecated", False),
        (PendingDeprecationWarning, "no positive reason to use this", False),
        (FutureWarning, "nan will be an error", False),
        (ResourceWarning, "an empty file was not closed", False),
    ],
)
def test_what_says_that_a_value_is_undefined(category, text, counts):
    assert says_undefined(category, text) is counts
    assert value_of(warning(text, category), torch.rand(40)) == (0.0 if counts else 1.0)


def test_the_warnings_of_other_libraries_as_they_are():
    ones, half = torch.ones(40, dtype=torch.long), torch.arange(40) % 2
    scores = torch.rand(40, generator=torch.Generator().manual_seed(0))
    assert value_of(BinaryAUROC(), scores, ones) == 0.0
    assert value_of(BinaryAUROC(), scores, half) > 0.2
    as_arrays = lambda metric: lambda p, t: metric(t.numpy(), p.numpy())  # noqa: E731
    assert value_of(as_arrays(roc_auc_score), scores, ones) == 0.0
    assert value_of(as_arrays(roc_auc_score), scores, half) > 0.2
    assert value_of(as_arrays(f1_score), 0 * ones, 0 * ones) == 0.0
    assert value_of(as_arrays(f1_score), ones, ones) == 1.0
    assert value_of(as_arrays(r2_score), scores, scores, blocks=40) == 0.0  # one row each
    divided = lambda p: float(np.divide(p.numpy() * 0, p.numpy() * 0).size)  # noqa: E731
    assert value_of(divided, scores, blocks=40) == 0.0  # the warning counts, whatever came out


def test_a_warning_given_once_per_place_counts_in_every_block():
    """Whatever registries and filters say: the same blocks have the same value."""
    metric = warning("only one class")
    for action in ("default", "once", "module", "ignore", "error", "always"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert value_of(metric, torch.rand(40)) == 0.0
    once = lambda p: float(torch.ones(2, 1, 1).T.mean())  # noqa: E731
    assert value_of(once, torch.rand(40)) == 1.0  # torch deprecates it: no undefined value


def test_nothing_is_shown_and_filters_are_as_before(recwarn):
    before, show = list(warnings.filters), warnings._showwarnmsg
    assert value_of(warning("nan: the targets were 0 1 0"), torch.rand(40)) == 0.0
    assert list(warnings.filters) == before
    assert warnings._showwarnmsg is show
    assert not torch.is_warn_always_enabled()
    assert len(recwarn) == 0
    warnings.warn("the user's own", stacklevel=1)
    assert [str(w.message) for w in recwarn] == ["the user's own"]


class Noisy:
    """A thread that warns all the time, in a context of its own or not."""

    def __init__(self, action):
        self.action, self.ended, self.count = action, threading.Event(), 0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            self.count += 1
            if self.action is None:
                warnings.warn("only one class", stacklevel=1)
                continue
            with warnings.catch_warnings():
                warnings.simplefilter(self.action)
                warnings.warn("only one class", stacklevel=1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("action", [None, "always", "default"])
def test_warnings_of_another_thread_do_not_count_and_do_not_hide(action):
    def busy(p):
        total = 0.0
        for _ in range(30):  # long enough for the other thread to get its turn
            total += float(p.sort().values.sum())
        return 1.0

    def undefined_one(p):
        busy(p)
        warnings.warn("only one class", stacklevel=1)
        return 1.0

    rows = torch.rand(4000)
    with warnings.catch_warnings(record=True), Noisy(action) as other:
        found = {(value_of(busy, rows), value_of(undefined_one, rows)) for _ in range(20)}
    assert other.count > 20
    assert found == {(1.0, 0.0)}


def test_twin_that_records_for_the_whole_process_is_caught():
    """As it was: the other thread's warning counted as the block's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=lambda: warnings.warn("only one class", stacklevel=1))
        thread.start()
        thread.join()
    assert len(caught) == 1
    with warnings.catch_warnings(record=True) as theirs, heard_warnings() as heard:
        warnings.simplefilter("always")
        thread = threading.Thread(target=lambda: warnings.warn("only one class", stacklevel=1))
        thread.start()
        thread.join()
    assert (heard, len(theirs)) == ([], 1)


def test_two_threads_listen_at_once_and_inside_each_other():
    with heard_warnings() as outer:
        warnings.warn("first", stacklevel=1)
        with heard_warnings() as inner:
            warnings.warn("second", stacklevel=1)
        warnings.warn("third", stacklevel=1)
    assert [text for _, text in outer] == ["first", "third"]
    assert [text for _, text in inner] == ["second"]
    found = {}

    def listen(name):
        with heard_warnings() as heard:
            for _ in range(200):
                warnings.warn(name, stacklevel=1)
        found[name] = {text for _, text in heard}, len(heard)

    threads = [threading.Thread(target=listen, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: ({name}, 200) for name in "abcd"}
    assert undefined._listeners == 0


def test_filters_can_be_sent_to_another_process_meanwhile():
    """As joblib does with those of its caller."""
    with heard_warnings():
        _, text, *_ = pickle.loads(pickle.dumps(warnings.filters))[0]
    assert not text.match("anything")
