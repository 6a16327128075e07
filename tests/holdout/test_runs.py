import threading

import pytest
import torch_holdout as th
from torch_holdout.holdout.runs import as_run_name, current_run
from torch_holdout.ledger import Ledger

from support.builders.holdouts import ask, make_holdout


def runs_of(holdout):
    ledger = Ledger(holdout.status().ledger)
    return [answer.run for answer in ledger.answers(ledger.accounts()[holdout.name])]


def refusals_of(holdout):
    ledger = Ledger(holdout.status().ledger)
    return ledger.refusals(ledger.accounts()[holdout.name])


def test_answers_carry_the_name_of_the_innermost_run(tmp_path):
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", seed=1)
    ask(holdout, 10, "a")
    with th.named_run("outer"):
        ask(holdout, 20, "b")
        with th.named_run("inner"):
            ask(holdout, 30, "c")
        ask(holdout, 40, "d")
    assert current_run() is None
    assert runs_of(holdout) == [None, "outer", "inner", "outer"]


def test_the_name_decides_nothing(tmp_path):
    """Neither the query, which stays a repeat, nor the noise."""
    named = make_holdout(f"sqlite:///{tmp_path}/named.db", seed=1)
    plain = make_holdout(f"sqlite:///{tmp_path}/plain.db", seed=1)
    with th.named_run("one"):
        first = ask(named, 20, "a")
    assert first == ask(plain, 20, "a")
    with th.named_run("another"):
        assert ask(named, 20, "a").kind == "repeat"
    assert runs_of(named) == ["one"]


def test_what_is_asked_after_the_budget_is_counted_and_not_answered(tmp_path):
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", budget=1, seed=1)
    first = ask(holdout, 20, "a")
    with th.named_run("late"):
        for query in "bcd":
            assert ask(holdout, 45, query).kind == "exhausted"
        assert ask(holdout, 20, "a").value == first.value
    (found,) = refusals_of(holdout)
    assert (found.statistic, found.run, found.count) == ("val_acc", "late", 3)
    assert (holdout.status().queries, holdout.status().releases) == (1, 1)


def test_threads_have_names_of_their_own(tmp_path):
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", seed=1)

    def trial(number):
        with th.named_run(f"trial {number}"):
            ask(holdout, 10 * number, f"query {number}")

    threads = [threading.Thread(target=trial, args=(number,)) for number in range(4)]
    with th.named_run("main"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(runs_of(holdout)) == [f"trial {number}" for number in range(4)]


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 201, 7, None, "\udc80"])
def test_a_name_that_cannot_be_shown_is_refused(name):
    with pytest.raises(th.InvalidArgumentError, match="printable text"), th.named_run(name):
        pass
    assert current_run() is None


def test_any_text_becomes_a_name():
    for text in ("", "\x00", "a" * 500, "logs/version_0", "tab\there"):
        with th.named_run(as_run_name(text)):
            assert current_run() == as_run_name(text)
    assert as_run_name("a" * 500 + "/version_0") == "a" * 190 + "/version_0"  # the end tells more
    assert as_run_name("\x00") == "unnamed"
