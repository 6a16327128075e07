"""Closing a board: exact values, intervals, orderings by paired tests, rank ranges."""

import math

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.challenges import gain_low, sign_test_keeps
from torch_holdout.bounds.closing import closing_interval, exact_interval
from torch_holdout.bounds.codes import board_bracket
from torch_holdout.errors import HoldoutError, HoldoutMismatchError, InvalidArgumentError
from torch_holdout.holdout.board_judging import _products
from torch_holdout.ledger import verify

from support.builders.board_holdouts import ROWS, VAULT, make_board, right, sha, submit, with_teams

COUNTS = {"a": 1500, "b": 1496, "c": 1200, "d": 1490}


def closed(mode="ladder", **changes):
    """A closed board with four submissions, of two analysts."""
    board = with_teams(make_board(mode=mode, **changes))
    for place, name in enumerate("abcd"):
        count = COUNTS[name] * ROWS // VAULT
        submit(board, count, name, ("alpha", "beta")[place % 2])
    board.close()
    return board


def finalists(names="abcd", size=VAULT):
    values = {sha(n): right(COUNTS[n] * size // VAULT, size) for n in names}
    return values, {sha(n): ("alpha", "beta")["abcd".index(n) % 2] for n in names}


class TestVault:
    def test_values_are_exact_with_intervals_at_ln_40_f(self):
        results = closed().judge(*finalists())
        assert results.bracket == pytest.approx(math.log(40 * 4))
        assert (results.rows, results.vault) == (VAULT, True)
        names = {sha(n): n for n in "abcd"}
        assert [names[f.submission] for f in results.finalists] == ["a", "b", "d", "c"]
        for finalist in results.finalists:
            count = COUNTS[names[finalist.submission]]
            own = finalist.results["accuracy"]
            assert own.value == count / VAULT
            assert own.interval == exact_interval(count, VAULT, results.bracket)

    def test_what_was_told_before_is_not_paid_again(self):
        """The vault's rows were asked about by nobody: only the number of finalists counts."""
        quiet, told = closed("sealed"), closed("ladder")
        results = quiet.judge(*finalists()), told.judge(*finalists())
        assert told.standing().nats > 0
        assert results[0].bracket == results[1].bracket
        shown = [[f.told for f in each.finalists] for each in results]
        assert shown[0] == [None] * 4
        assert shown[1][:2] == [0.75, 0.75]

    def test_ranks_are_what_certain_orderings_leave(self):
        results = closed().judge(*finalists())
        bracket = math.log(4 * 3 / 0.05)
        assert results.ordering_bracket == pytest.approx(bracket)
        ranks = {f.submission: f.rank for f in results.finalists}
        assert sign_test_keeps(10, 0, bracket)
        assert not sign_test_keeps(6, 0, bracket)
        assert ranks == {sha("a"): (1, 2), sha("b"): (1, 3), sha("d"): (2, 3), sha("c"): (4, 4)}
        first = results.finalists[0]
        assert set(first.better_than) == {sha("c"), sha("d")}

    def test_running_it_again_gives_the_same(self):
        board = closed()
        first = board.judge(*finalists())
        assert board.judge(*finalists()) == first
        assert verify(board.address).findings == []

    def test_other_finalists_or_labels_are_refused_ever_after(self):
        """A vault is asked once: a second list of finalists would be a second claim."""
        board = closed()
        first = board.judge(*finalists())
        with pytest.raises(HoldoutMismatchError, match="new labels"):
            board.judge(*finalists("abc"))
        values, analysts = finalists()
        with pytest.raises(HoldoutMismatchError):
            board.judge(values | {sha("a"): right(1501, VAULT)}, analysts)
        assert board.judge(*finalists()) == first

    def test_one_content_of_two_analysts_is_one_query(self):
        board = with_teams(make_board())
        for name in ("alpha", "beta"):
            submit(board, 700, "same", name)
        board.close()
        values = {sha("same"): right(1400, VAULT)}
        results = board.judge(values, {sha("same"): ["beta", "alpha"]})
        assert [f.analyst for f in results.finalists] == ["alpha", "beta"]
        assert results.bracket == pytest.approx(math.log(40))
        assert {f.rank for f in results.finalists} == {(1, 1)}

    def test_losses_and_blocks_have_intervals_of_their_kind(self):
        def share(preds, target):
            return (preds == target).float().mean()

        kinds = {
            "loss": th.BoundedMean(0.0, 2.0),
            "blocks": th.Blockwise(share, blocks=20, low=0.0, high=1.0),
        }
        board = with_teams(make_board(statistics=kinds, feedback={"baseline": 1.0, "step": 0.02}))

        def values(mean, size):
            places = torch.arange(size)
            loss = mean + 0.3 * torch.cos(3.0 * places)
            return {"loss": loss, "blocks": (places % 2, torch.zeros(size))}

        for mean in (0.5, 0.6):
            board.submit("alpha", values(mean, ROWS), query=sha(mean))
        board.close()
        own = {sha(mean): values(mean, VAULT) for mean in (0.5, 0.6)}
        results = board.judge(own, dict.fromkeys(own, "alpha"))
        bracket = math.log(2 * 2 * 2 / 0.05)
        assert results.bracket == pytest.approx(bracket)
        best = results.finalists[0]
        levels = (own[best.submission]["loss"].double() / 2 * 65536).round().long()
        low, high = closing_interval(
            kind="mean", total=int(levels.sum()), squares=int((levels**2).sum()), units=VAULT,
            resolution=65536, bracket=bracket,
        )  # fmt: skip
        assert best.results["loss"].interval == pytest.approx((2 * low, 2 * high))
        assert best.rank == (1, 1)
        low, high = best.results["blocks"].interval
        assert low < 0.5 < high


class TestWithoutAVault:
    def test_a_sealed_board_pays_for_all_submissions(self):
        """N of all accounts, however few of them are judged."""
        board = closed("sealed", vault_size=0)
        results = board.judge(*finalists("ab", ROWS))
        assert results.bracket == pytest.approx(math.log(40 * 4))
        assert not results.vault
        assert results.rows == ROWS

    def test_with_feedback_each_finalist_pays_what_was_told_before_it(self):
        board = closed("ladder", vault_size=0)
        said = {a.submission: 0.0 for a in board.answers()}
        total = 0.0
        for answer in board.answers():
            said[answer.submission] = total
            total += answer.nats
        results = board.judge(*finalists("abcd", ROWS))
        positions = {answer.submission: answer.position for answer in board.answers()}
        for finalist in results.finalists:
            bracket = board_bracket(
                position=positions[finalist.submission], planned=40, failure=0.05,
                said=said[finalist.submission],
            )  # fmt: skip
            count = round(finalist.results["accuracy"].value * ROWS)
            expected = exact_interval(count, ROWS, bracket)
            assert finalist.results["accuracy"].interval == pytest.approx(expected, abs=1e-9)
        assert results.ordering_bracket > math.log(12 / 0.05)

    def test_a_board_without_open_rows_is_judged_on_its_vault(self):
        board = with_teams(make_board(mode="sealed", size=0))
        board.submit("alpha", {}, query=sha("a"))
        board.close()
        results = board.judge({sha("a"): right(1500, VAULT)}, {sha("a"): "alpha"})
        assert results.finalists[0].results["accuracy"].value == 0.75


class TestRefusals:
    def test_an_open_board_is_not_judged(self):
        board = with_teams(make_board())
        submit(board, 700, "a")
        with pytest.raises(HoldoutError, match="to be closed before"):
            board.judge(*finalists("a"))

    @pytest.mark.parametrize(
        "analysts", [{}, {sha("a"): "beta"}, {sha("a"): []}, {sha("e"): "beta"}]
    )
    def test_finalists_were_submitted_by_their_analysts(self, analysts):
        with pytest.raises(InvalidArgumentError):
            closed().judge(finalists("a")[0], analysts)

    def test_no_finalists(self):
        with pytest.raises(InvalidArgumentError, match="at least one"):
            closed().judge({}, {})


class TestPairs:
    @pytest.mark.parametrize("resolution", [1, 2**16, 2**24])
    def test_products_are_exact(self, resolution):
        drawn = torch.Generator().manual_seed(1)
        levels = torch.randint(0, resolution + 1, (5, 9000), generator=drawn)
        exact = [[int((a * b).sum()) for b in levels] for a in levels]
        assert _products(levels.to(torch.int32), resolution) == exact

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_means_are_ordered_by_moments_of_paired_differences(self, mode):
        statistic = {"loss": th.BoundedMean(0.0, 1.0, mode=mode)}
        feedback = {"baseline": 0.5, "step": 0.02}
        board = with_teams(make_board(statistics=statistic, feedback=feedback))
        noise = torch.rand(VAULT, generator=torch.Generator().manual_seed(2)) / 2
        shifts = {sha(shift): noise + shift for shift in (0.1, 0.103, 0.2)}
        for query in shifts:
            board.submit("alpha", {"loss": torch.full((ROWS,), 0.4)}, query=query)
        board.close()
        results = board.judge(
            {query: {"loss": values} for query, values in shifts.items()},
            dict.fromkeys(shifts, "alpha"),
        )
        better = {f.submission: set(f.better_than) for f in results.finalists}
        bracket = math.log(6 / 0.05)
        for one, first in shifts.items():
            for other, second in shifts.items():
                a, b = ((v.double() * 65536).round().long() for v in (first, second))
                gain = (b - a if mode == "min" else a - b) if one != other else a * 0
                squares = int((gain * gain).sum())
                certain = gain_low(int(gain.sum()), squares, VAULT, 65536, bracket) >= 0
                assert (other in better[one]) == (certain and one != other)
        assert sum(map(len, better.values())) >= 2
