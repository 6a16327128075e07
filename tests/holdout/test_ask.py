"""One line asks: the same answer and charge as an accumulator; refused before anything is read."""

import math
import threading

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout.errors import InvalidArgumentError, PartialPassError, WeightsChangedError

from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.builders.sealed_logs import events_of

EXACT = th.Ladder(step=0.001)
LOSS = th.BoundedMean(0.0, 2.0)
TRAIN = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")


def exact(**changes):
    return make_holdout(mechanism=EXACT, grid=1000, **changes)


def hits(count):
    return np.arange(50) < count


def test_values_of_a_pass_are_answered_as_their_sums_are():
    one, other = exact(), exact()
    assert one.ask("val_acc", hits(31), query="a") == ask(other, 31, "a")
    assert one.ask("val_acc", hits(31), query="a").kind == "repeat"
    assert one.ask("val_acc", hits(40), query="b").value == 0.8
    assert one.status().releases == 2


def test_the_noise_is_that_of_a_release():
    def noisy():
        return make_holdout(seed=7)

    assert noisy().ask("val_acc", hits(31), query="a") == ask(noisy(), 31, "a")


def test_several_statistics_are_one_query():
    holdout = exact(statistics={"val_acc": th.ZeroOne(), "val_loss": LOSS})
    values = {"val_loss": [1.0] * 50, "val_acc": hits(31)}
    answers = holdout.ask(values, query="a")
    assert {name: answer.value for name, answer in answers.items()} == {
        "val_acc": 0.62, "val_loss": 1.0,
    }  # fmt: skip
    assert holdout.ask("val_loss", values["val_loss"], query="a").kind == "repeat"


def test_a_tuple_is_several_arguments_unless_it_holds_numbers():
    holdout = exact()
    target = np.zeros(50, dtype=int)
    assert holdout.ask("val_acc", (1 - hits(31).astype(int), target), query="a").value == 0.62
    assert holdout.ask("val_acc", tuple(hits(41)), query="b").value == 0.82
    assert holdout.ask("val_acc", tuple(hits(45).tolist()), query="c").value == 0.9


def test_sums_that_are_sealed_already_are_taken():
    holdout = exact()
    assert holdout.ask("val_acc", sums_of(holdout, correct(31)), query="a").value == 0.62


@pytest.mark.parametrize("guess", [0.6, np.float32(0.6), torch.tensor(0.6), 1])
def test_a_guess_may_be_a_number(guess):
    answer = make_holdout(mechanism=TRAIN).ask("val_acc", hits(30), query="a", guess=guess)
    assert answer.kind == ("guess" if guess != 1 else "release")


def test_a_guess_may_be_values_of_training_examples():
    holdout = make_holdout(mechanism=TRAIN, grid=1000)
    near = holdout.ask("val_acc", hits(30), query="a", guess=np.arange(10) < 6)
    far = holdout.ask({"val_acc": hits(30)}, query="b", guess={"val_acc": [True] * 7})
    assert (near.kind, near.value) == ("guess", 0.6)
    assert far["val_acc"].kind == "release"


def test_a_module_names_a_query_by_its_weights():
    holdout, model = exact(), nn.Linear(2, 1).eval()
    first = holdout.ask("val_acc", hits(31), query=model)
    same = holdout.ask("val_acc", hits(31), query=weights_fingerprint(model))
    with torch.no_grad():
        model.weight.add_(1)
    other = holdout.ask("val_acc", hits(40), query=model)
    assert [first.kind, same.kind, other.kind] == ["release", "repeat", "release"]
    assert holdout.recall("val_acc", model).value == other.value
    assert holdout.recall("val_acc", nn.Linear(2, 1)) is None


REFUSED = {
    "too few": (("val_acc", hits(31)[:49]), {}, PartialPassError, "all 50 examples"),
    "too many": (("val_acc", list(hits(31)) * 2), {}, PartialPassError, "2 values for each"),
    "none": (("val_acc", []), {}, PartialPassError, "all 50 examples"),
    "text": (("val_acc", ["right"] * 50), {}, InvalidArgumentError, "array of numbers"),
    "no values": (("val_acc",), {}, InvalidArgumentError, "its values"),
    "no statistic": (({},), {}, InvalidArgumentError, "its values"),
    "values twice": (({"val_acc": hits(3)}, hits(3)), {}, InvalidArgumentError, "its values"),
    "unknown": (("loss", hits(31)), {}, InvalidArgumentError, "registered statistics"),
    "soft": (("val_acc", np.full(50, 0.5)), {}, InvalidArgumentError, "booleans or integers"),
    "a model": (("val_acc", hits(31)), {"query": object()}, InvalidArgumentError, "th.digest"),
    "training": (
        ("val_acc", hits(31)), {"query": nn.Dropout()}, WeightsChangedError, "training mode",
    ),
    "a guess": (("val_acc", hits(31)), {"guess": 0.5}, InvalidArgumentError, "Expected no guess"),
    "a flag": (("val_acc", hits(31)), {"fresh": 1}, InvalidArgumentError, "fresh"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_refused_and_not_charged(case):
    arguments, named, kind, sentence = REFUSED[case]
    holdout = exact()
    with pytest.raises(kind, match=sentence) as caught:
        holdout.ask(*arguments, **{"query": "a", **named})
    assert holdout.status().queries == 0
    frames = [f.frame.f_locals for f in caught.traceback if "torch_holdout" in str(f.path)]
    assert frames
    assert not any("values" in known or "arguments" in known for known in frames)


def sealed(**changes):
    return make_holdout(mechanism=th.Sealed(evaluations=10), **changes)


def curve(holdout, name="val_acc"):
    return [each.value for each in holdout.close().curve(name)]


def test_a_sealed_holdout_names_the_run():
    class Unread:
        def __array__(self):
            raise AssertionError("nothing may be read")

    holdout = sealed()
    with pytest.raises(InvalidArgumentError, match=r"run\.evaluate\(\{name: values\}, query="):
        holdout.ask("val_acc", Unread(), query="a")
    assert holdout.status().queries == 0


def test_a_run_takes_plain_values_and_shows_them_at_closing():
    holdout = sealed(statistics={"val_acc": th.ZeroOne(), "val_loss": LOSS})
    with holdout.run(stop=th.Patience("val_acc", patience=2)) as run:
        for epoch, count in enumerate((20, 31, 25, 31, 40)):
            values = {"val_acc": hits(count), "val_loss": [0.5] * 50}
            if run.evaluate(values, query=f"epoch {epoch}").stop:
                break
    assert (epoch, run.outcome.best_evaluation) == (3, 2)
    assert curve(holdout, "val_acc") == [0.4, 0.62, 0.5, 0.62]
    assert curve(holdout, "val_loss") == [0.5] * 4


def test_plain_values_and_sealed_sums_are_the_same_event():
    logs = []
    for plain in (True, False):
        holdout = sealed()
        with holdout.run(best="val_acc") as run:
            values = hits(31) if plain else sums_of(holdout, correct(31))
            run.evaluate({"val_acc": values}, query="a")
        logs.append([(e["kind"], e["query"], e["detail"]) for e in events_of(holdout)])
    assert logs[0] == logs[1] != []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"val_acc": hits(31)[:49]}, PartialPassError),
        ({"val_acc": ["right"] * 50}, InvalidArgumentError),
        ({"loss": hits(31)}, InvalidArgumentError),
        ({}, InvalidArgumentError),
        (hits(31), InvalidArgumentError),
    ],
    ids=["too few", "text", "unknown", "none", "no mapping"],
)
def test_a_run_refuses_what_is_no_pass_and_is_not_begun(values, kind):
    holdout = sealed()
    run = holdout.run()
    with pytest.raises(kind) as caught:
        run.evaluate(values, query="a")
    assert run.id is None
    assert events_of(holdout) == []
    assert not any("sums" in frame.frame.f_locals for frame in caught.traceback[1:])


class Lazy:
    """An array of which every reading is another."""

    def __init__(self, *counts):
        self.counts = list(counts)

    def __array__(self):
        return hits(self.counts.pop(0))


def test_an_array_is_read_once_for_an_answer():
    lazy = Lazy(31, 40)
    assert exact().ask("val_acc", lazy, query="a").value == 0.62
    assert lazy.counts == [40]


def test_what_happens_to_an_array_after_it_was_handed_over_changes_nothing():
    """A thread writes into the array throughout: whatever is read lies within the bounds.

    Sums are taken before ``evaluate`` returns, so afterwards nothing can change them.
    """
    holdout, shared, done = sealed(), np.zeros(50, dtype=bool), threading.Event()

    def write():
        while not done.is_set():
            shared[:] = ~shared

    writer = threading.Thread(target=write)
    writer.start()
    with holdout.run() as run:
        for number in range(5):
            run.evaluate({"val_acc": shared}, query=str(number))
    done.set()
    writer.join()
    before = curve(holdout)
    shared[:] = True
    assert curve(holdout) == before
    assert all(0.0 <= value <= 1.0 for value in before)


class Telling:
    """Its errors quote what it holds."""

    def __array__(self):
        raise ValueError(f"cannot convert 0.7310 of {hits(31)}")


@pytest.mark.parametrize("way", ["ask", "evaluate", "challenge"])
def test_an_error_of_an_array_keeps_its_type_only(way):
    holdout = exact() if way == "ask" else sealed()
    if way == "evaluate":
        arguments, asking = ({"val_acc": Telling()},), holdout.run().evaluate
    else:
        arguments, asking = ("val_acc", Telling()), getattr(holdout, way)
    with pytest.raises(InvalidArgumentError, match=r"Telling \(ValueError\)") as caught:
        asking(*arguments, query="a")
    assert "7310" not in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert holdout.budget_left == holdout.budget


def test_statistics_of_several_arguments_take_arrays():
    ids = np.repeat(["ann", "bob"], 25)
    by_person = th.GroupedMean(0.0, 1.0, mode="max", groups=ids)
    quotient = th.Ratio(LOSS, th.BoundedMean(0.0, 10.0), low=0.0, high=1.0)
    area = th.Blockwise(lambda scores, target: (scores > 0.5).eq(target).double().mean(), 5, 0, 1)
    holdout = exact(statistics={"person": by_person, "ratio": quotient, "blocks": area})
    values = {
        "person": (hits(25).astype(float), ids),
        "ratio": (np.full(50, 1.0), [4] * 50),
        "blocks": (hits(10).astype(np.float32), hits(10).tolist()),
    }
    answers = holdout.ask(values, query="a")
    assert {name: answer.value for name, answer in answers.items()} == {
        "person": 0.5, "ratio": 0.25, "blocks": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("nothing", [math.nan, math.inf, None])
def test_no_value_decides_whether_it_raises(nothing):
    holdout = exact(statistics={"val_loss": LOSS})
    assert holdout.ask("val_loss", [0.0] * 25 + [nothing] * 25, query="a").value == 1.0
