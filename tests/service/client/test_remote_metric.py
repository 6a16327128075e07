"""The metric on a board over HTTP, in one process and on two ranks."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutWarning,
    InvalidArgumentError,
    PartialPassError,
    WeightsChangedError,
)
from torch_holdout.tuning.reporting import told_value

from support.machines.board_stand_in import TOKEN, standing_in
from support.machines.ranks import on_two_ranks

RIGHT = torch.arange(41) % 10


def partly(right):
    return torch.where(torch.arange(41) < right, RIGHT, (RIGHT + 1) % 10)


@pytest.fixture
def board(token):
    with standing_in(RIGHT.numpy()) as stand_in:
        yield stand_in


def metric(board, **options):
    return th.ReusableHoldoutMetric(th.remote(board.url, wait=30).holdout(), "accuracy", **options)


def passed(one, predictions, batch=7):
    """Update with a pass, and compute."""
    one.reset()
    for rows in predictions.split(batch):
        one.update(rows)
    return float(one.compute())


def test_a_pass_is_answered_and_a_repeat_is_free(board):
    one = metric(board)
    assert passed(one, partly(30)) == pytest.approx(30 / 41)
    assert (one.answer.kind, one.answer.budget_left, one.answer.position) == ("release", 7, 1)
    assert passed(one, partly(20)) == pytest.approx(30 / 41)
    assert (one.answer.kind, one.answer.is_release) == ("guess", False)
    assert passed(one, partly(30), batch=41) == pytest.approx(30 / 41)
    assert (one.answer.kind, one.answer.is_release) == ("repeat", True)
    assert len(board.answers) == 2
    assert one.higher_is_better


def test_scores_and_classes_are_the_same_submission(board):
    scores = nn.functional.one_hot(partly(30), 10).float()
    one = metric(board)
    passed(one, partly(30))
    passed(one, scores * 3 - 1)
    passed(one, scores.to(torch.bfloat16))
    assert one.answer.kind == "repeat"
    assert len(board.answers) == 1


def test_copies_ask_the_same_board(board):
    one = metric(board)
    passed(one, partly(30))
    for other in (one.clone(), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        passed(other, partly(30))
        assert other.answer.kind == "repeat"
    assert TOKEN.encode() not in pickle.dumps(one)


def test_a_partial_pass_is_nan_and_sends_nothing(board):
    one = metric(board)
    for rows in (partly(30)[:40], torch.cat([partly(30), RIGHT[:1]])):
        with pytest.warns(HoldoutWarning, match="all 41 rows"):
            assert np.isnan(passed(one, rows))
    assert board.count("PUT") == 0


def test_exhaustion(board):
    board.releases = 1
    one, frozen = metric(board), metric(board, on_exhausted="freeze")
    passed(frozen, partly(30))
    with pytest.raises(BudgetExhaustedError, match=r"\(1 release\) is spent"):
        passed(one, partly(35))
    with pytest.warns(HoldoutWarning, match="stale"):
        assert passed(frozen, partly(35)) == pytest.approx(30 / 41)
    assert frozen.answer.kind == "exhausted"


def test_weights_that_changed_in_the_pass_are_refused(board):
    model = nn.Linear(2, 2)
    one = metric(board, model=model)
    one.update(partly(30))
    with torch.no_grad():
        model.weight.add_(1)
    with pytest.raises(WeightsChangedError, match="throughout the pass"):
        one.compute()
    assert board.count("PUT") == 0


def test_training_values_are_refused(board):
    with pytest.raises(InvalidArgumentError, match="no training values"):
        metric(board).update_train(RIGHT)


def test_an_unknown_statistic_is_refused(board):
    with pytest.raises(InvalidArgumentError, match="accuracy"):
        th.ReusableHoldoutMetric(th.remote(board.url).holdout(), "loss")


@pytest.mark.parametrize(
    "rows", [RIGHT.float(), torch.zeros(41, 9), torch.zeros(41, 2, 10), torch.tensor(3)]
)
def test_other_shapes_are_refused(board, rows):
    with pytest.raises(InvalidArgumentError, match="as predictions for board"):
        metric(board).update(rows)


def test_an_expanded_row_is_refused(board):
    with pytest.raises(InvalidArgumentError, match="of its own"):
        metric(board).update(torch.tensor([3]).expand(41))


def test_what_belongs_to_a_ledger_says_that_it_is_remote(board):
    holdout = th.remote(board.url).holdout()
    for ask in (
        lambda: holdout.recall("accuracy", nn.Linear(1, 1)),
        holdout.run,
        holdout.close,
        holdout.certificate,
        holdout.estimation_set,
    ):
        with pytest.raises(th.HoldoutError, match="remote"):
            ask()


def test_a_sweep_is_told_one_step_less_than_a_guess(board):
    one = metric(board)
    passed(one, partly(30))
    passed(one, partly(20))
    told = told_value(one.holdout, "accuracy", one.answer)
    assert told == pytest.approx(30 / 41 - 0.01)


@pytest.mark.parametrize("given", [None, {}, 3, "val", object()])
def test_what_is_no_door_is_refused(given):
    with pytest.raises(InvalidArgumentError, match=r"ReusableHoldout, or what th\.remote"):
        th.ReusableHoldoutMetric(given, "accuracy")


# ---- two ranks


def share(rows, rank, padded=True):
    """A rank's rows as a DistributedSampler deals them: 41 rows on 2 ranks are 21 each, padded."""
    order = list(range(len(rows))) + ([0] if padded else [])
    return rows[order[rank::2]]


def one_pass(rank, url, rows):
    own = th.ReusableHoldoutMetric(th.remote(url, TOKEN, wait=30).holdout(), "accuracy")
    value = passed(own, share(rows, rank))
    return value, own.answer.kind, own.answer.budget_left, own.holdout.budget_left


def two_passes(rank, url, rows):
    own = th.ReusableHoldoutMetric(th.remote(url, TOKEN, wait=30).holdout(), "accuracy")
    return [passed(own, share(each, rank)) for each in rows]


def fails(rank, url, rows, padded):
    own = th.ReusableHoldoutMetric(th.remote(url, TOKEN, wait=0).holdout(), "accuracy")
    try:
        for each in share(rows, rank, padded).split(7):
            own.update(each)
        own.holdout.release("accuracy", own._sums, query="a pass")
    except th.HoldoutError as error:
        return type(error).__name__, str(error)
    return "answered", ""


@pytest.mark.integration
class TestTwoRanks:
    def test_they_get_one_answer_and_rank_0_alone_sends(self, board):
        """41 rows: the sampler repeats one, which is left out; the content is that of one rank."""
        found = on_two_ranks(one_pass, board.url, partly(30))
        assert found[0] == found[1] == (pytest.approx(30 / 41), "release", 7, 7)
        assert board.count("PUT") == 1
        assert passed(one := metric(board), partly(30)) == pytest.approx(30 / 41)
        assert one.answer.kind == "repeat"

    def test_they_stay_together(self, board):
        rows = [partly(25), partly(20), partly(30)]
        found = on_two_ranks(two_passes, board.url, rows)
        assert found[0] == found[1] == pytest.approx([25 / 41, 25 / 41, 30 / 41])

    def test_a_partial_pass_is_refused_on_both(self, board):
        found = on_two_ranks(fails, board.url, partly(30)[:38], False)
        assert {kind for kind, _ in found} == {PartialPassError.__name__}
        assert board.count("PUT") == 0

    @pytest.mark.parametrize(
        ("failure", "error"), [(503, "BoardUnreachableError"), (403, "BoardRefusedError")]
    )
    def test_a_failure_of_rank_0_reaches_both(self, board, failure, error):
        board.only = "PUT"
        board.failures.append(failure)
        found = on_two_ranks(fails, board.url, partly(30), True)
        assert [kind for kind, _ in found] == [error, error]
