"""A board through its door: what a submission is told, and what it is not."""

import math
import traceback

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.codes import board_bracket
from torch_holdout.bounds.symbols import kt_price, record_price
from torch_holdout.errors import (
    BoardClosedError,
    HoldoutError,
    HoldoutMismatchError,
    InvalidArgumentError,
    PartialPassError,
    QuotaExhaustedError,
)
from torch_holdout.holdout import board as board_module
from torch_holdout.holdout.board import BoardHoldout, Feedback
from torch_holdout.ledger import verify
from torch_holdout.ledger.analysts import BoardAccount

from support.builders.board_holdouts import MODES, ROWS, make_board, right, sha, submit, with_teams


def kinds(answers):
    return [answer.kind for answer in answers]


class TestLadder:
    def test_each_analyst_has_a_ladder_above_the_baseline(self):
        board = with_teams(make_board())
        counts = [500, 600, 605, 700, 690]
        own = [submit(board, count, f"a{count}") for count in counts]
        assert kinds(own) == ["guess", "release", "guess", "release", "guess"]
        values = [answer.results["accuracy"].value for answer in own]
        assert values == [0.55, 0.6015625, 0.6015625, 0.703125, 0.703125]
        other = submit(board, 600, "b600", "beta")
        assert (other.kind, other.better, other.position) == ("release", True, 6)
        assert own[0].better is False

    def test_lower_is_better_for_losses(self):
        loss = {"loss": th.BoundedMean(0.0, 4.0)}
        board = make_board(statistics=loss, feedback={"baseline": 2.0})
        with_teams(board)
        told = [
            board.submit("alpha", {"loss": torch.full((ROWS,), value)}, query=sha(value))
            for value in (2.5, 1.5, 1.49, 1.0)
        ]
        assert kinds(told) == ["guess", "release", "guess", "release"]
        assert [answer.results["loss"].value for answer in told] == [2.0, 1.5, 1.5, 1.0]

    def test_other_statistics_are_told_with_it_only_and_paid(self):
        both = {"accuracy": th.ZeroOne(), "loss": th.BoundedMean(0.0, 5.0)}
        board = with_teams(make_board(statistics=both))
        values = {**right(500), "loss": torch.full((ROWS,), 2.5)}
        silent = board.submit("alpha", values, query=sha("silent"))
        assert silent.results["loss"].value is None
        told = board.submit("alpha", values | right(700), query=sha("told"))
        assert told.results["loss"].value == 2.5
        alone = with_teams(make_board())
        submit(alone, 500, "silent")
        price = submit(alone, 700, "told").nats
        assert told.nats == pytest.approx(price + math.log(129), abs=1e-9)

    def test_intervals_pay_for_what_all_accounts_were_told(self):
        board = with_teams(make_board())
        first = submit(board, 700, "first").results["accuracy"].interval
        for count in (600, 650, 700, 750):
            submit(board, count, f"beta {count}", "beta")
        after = submit(board, 900, "after").results["accuracy"].interval
        assert first is not None
        assert after is None or after[1] - after[0] > first[1] - first[0]
        claim = board.standing().claim
        said = board.standing().nats
        assert said == pytest.approx(sum(a.nats for a in board.answers()), abs=1e-9)
        expected = board_bracket(position=7, planned=40, said=said, failure=0.05)
        assert claim.bracket == pytest.approx(expected, rel=1e-12)


class TestRecord:
    def test_one_ladder_serves_all(self):
        board = with_teams(make_board(mode="record"))
        asked = [("alpha", 600), ("beta", 605), ("beta", 640), ("alpha", 630), ("alpha", 700)]
        told = [submit(board, n, f"{who}{n}", who) for who, n in asked]
        assert kinds(told) == ["release", "guess", "release", "guess", "release"]
        assert told[3].results["accuracy"].value == told[2].results["accuracy"].value

    def test_flags_cost_what_the_registered_mixture_gives(self):
        board = with_teams(make_board(mode="record"))
        for count in (500, 510, 520, 530):
            submit(board, count, count)
        nats = sum(answer.nats for answer in board.answers())
        assert nats == pytest.approx(record_price([False] * 4, range(2, 6)), abs=1e-9)


class TestGate:
    def test_it_keeps_what_is_certainly_better(self):
        board, kept = with_teams(make_board(mode="gate")), {}
        for count in (600, 606, 700, 690):
            kept[sha(count)] = right(count)
        told = [submit(board, n, n, incumbent=kept.get) for n in (600, 606, 700, 690)]
        assert kinds(told) == ["first", "reverted", "kept", "reverted"]
        assert [answer.better for answer in told] == [None, False, True, False]
        assert all(answer.results["accuracy"].value is None for answer in told)
        assert board.standing().nats == pytest.approx(kt_price(1, 2), abs=1e-9)

    def test_each_analyst_has_an_incumbent_of_its_own(self):
        board = with_teams(make_board(mode="gate"))
        asked = []

        def incumbent(query):
            asked.append(query)
            return right(500)

        submit(board, 900, "a", "alpha", incumbent=incumbent)
        assert submit(board, 600, "b", "beta", incumbent=incumbent).kind == "first"
        assert submit(board, 700, "c", "beta", incumbent=incumbent).kind == "kept"
        submit(board, 700, "d", "beta", incumbent=incumbent)
        assert asked == [sha("b"), sha("c")]

    def test_a_lost_incumbent_is_replaced_without_a_test(self):
        board = with_teams(make_board(mode="gate"))
        submit(board, 900, "a")
        answer = submit(board, 100, "b", incumbent=lambda query: None)
        assert (answer.kind, answer.nats) == ("first", 0.0)
        assert verify(board.address).findings == []

    def test_the_margin_rule_keeps_what_is_better_by_so_much(self):
        rule = {"rule": "margin", "margin": 0.005}
        board = with_teams(make_board(mode="gate", feedback=rule))
        submit(board, 600, 600)
        assert submit(board, 604, 604, incumbent=lambda query: right(600)).kind == "reverted"
        assert submit(board, 606, 606, incumbent=lambda query: right(600)).kind == "kept"

    def test_later_keeps_must_be_surer(self):
        """What was said before is paid: the same gain is kept alone, and not after many."""
        first = with_teams(make_board(mode="gate", submissions=2))
        submit(first, 600, "a")
        assert submit(first, 612, "b", incumbent=lambda query: right(600)).kind == "kept"
        later = with_teams(make_board(mode="gate", submissions=2), submissions=50)
        submit(later, 600, "a")
        for k in range(30):
            submit(later, 590, k, incumbent=lambda query: right(600))
        assert submit(later, 612, "b", incumbent=lambda query: right(600)).kind == "reverted"


class TestSealed:
    def test_nothing_is_said_and_no_label_is_read(self):
        board = with_teams(make_board(mode="sealed"))
        answers = [board.submit("alpha", {}, query=sha(k)) for k in range(3)]
        assert kinds(answers) == ["sealed"] * 3
        assert board.standing().nats == 0.0
        assert {answer.results["accuracy"].value for answer in answers} == {None}


class TestRepeats:
    @pytest.mark.parametrize("mode", MODES)
    def test_a_repeat_is_free_and_equal(self, mode):
        board = with_teams(make_board(mode=mode))
        first = submit(board, 700, "a", incumbent=lambda query: right(600))
        again = submit(board, 200, "a", incumbent=lambda query: right(600))
        assert (again.kind, again.source) == ("repeat", first.kind)
        for name in ("position", "results", "better", "chain", "asked_at", "nats", "quota"):
            assert getattr(again, name) == getattr(first, name)
        assert board.recall("alpha", sha("a")) == again
        assert board.standing().position == 1

    def test_the_same_content_of_another_analyst_is_another_submission(self):
        board = with_teams(make_board())
        assert submit(board, 700, "a").kind == "release"
        assert board.recall("beta", sha("a")) is None
        assert submit(board, 700, "a", "beta").kind == "release"

    def test_repeats_work_after_the_quota_and_after_closing(self):
        board = with_teams(make_board(), submissions=1)
        first = submit(board, 700, "a")
        with pytest.raises(QuotaExhaustedError):
            submit(board, 800, "b")
        board.close()
        assert submit(board, 0, "a").results == first.results
        assert [answer.position for answer in board.answers("alpha")] == [1]


class TestRefusals:
    @pytest.mark.parametrize("mode", ["ladder", "record"])
    def test_a_refusal_says_nothing(self, mode, monkeypatch):
        """It comes before anything is decided, also where the outcome would not be better."""
        board = with_teams(make_board(mode=mode), releases=1)
        submit(board, 700, "first")
        before = board.standing()

        def decided(*arguments):
            raise AssertionError("decided")

        monkeypatch.setattr(board_module, "decided", decided)
        said = set()
        for count in (100, 705, 999):
            with pytest.raises(QuotaExhaustedError) as refused:
                submit(board, count, count)
            said.add((str(refused.value), refused.value.scope))
        assert said == {
            (
                "'alpha' has used its 1 release on board 'digits'. Nothing was answered or "
                "charged.",
                "analyst",
            )
        }
        after = board.standing()
        assert (after.chain, after.position, after.nats) == (
            before.chain, before.position, before.nats,
        )  # fmt: skip
        assert [analyst.refused for analyst in after.analysts] == [3, 0]

    def test_submissions_are_counted_too(self):
        board = with_teams(make_board(mode="sealed"), submissions=2)
        for k in range(2):
            submit(board, 0, k)
        with pytest.raises(QuotaExhaustedError, match="2 submissions"):
            submit(board, 0, "third")

    def test_shares_are_reserved(self):
        board = with_teams(make_board(), "alpha", releases=10)
        with pytest.raises(InvalidArgumentError, match="at most 6 releases"):
            board.add_analyst("beta", submissions=5, releases=7)
        board.add_analyst("beta", submissions=5, releases=6)
        with pytest.raises(InvalidArgumentError, match="already"):
            board.add_analyst("beta", submissions=5, releases=0)

    def test_a_closed_board_answers_nobody(self):
        board = with_teams(make_board())
        closed = board.close()
        assert board.close() == closed
        with pytest.raises(BoardClosedError) as refused:
            submit(board, 700, "a")
        assert refused.value.scope == "board"
        with pytest.raises(BoardClosedError):
            board.add_analyst("late", submissions=1, releases=0)

    def test_an_unknown_analyst(self):
        with pytest.raises(InvalidArgumentError, match="Add it first"):
            submit(make_board(), 700, "a")

    @pytest.mark.parametrize("size", [ROWS - 1, ROWS + 1, 0])
    def test_another_number_of_rows(self, size):
        board = with_teams(make_board())
        with pytest.raises(PartialPassError, match="another number"):
            board.submit("alpha", right(5, size), query=sha("a"))
        assert board.standing().position == 0

    @pytest.mark.parametrize("query", ["", "5E" * 32, "5e" * 31, None, 5])
    def test_a_query_is_a_digest(self, query):
        board = with_teams(make_board())
        with pytest.raises(InvalidArgumentError, match="SHA-256"):
            board.submit("alpha", right(5), query=query)

    def test_values_of_other_statistics(self):
        board = with_teams(make_board())
        with pytest.raises(InvalidArgumentError, match="values of the statistics"):
            board.submit("alpha", {"loss": torch.zeros(ROWS)}, query=sha("a"))


class TestTheDoor:
    def test_nothing_leaves_when_the_commit_fails(self, monkeypatch):
        board = with_teams(make_board())
        recorded = BoardAccount.record

        def record(self, *arguments):
            recorded(self, *arguments)
            raise RuntimeError("lost: accuracy .7")

        monkeypatch.setattr(BoardAccount, "record", record)
        with pytest.raises(HoldoutError) as failed:
            submit(board, 700, "a")
        assert ".7" not in str(failed.value)
        frames = traceback.walk_tb(failed.value.__traceback__)
        names = [frame.f_code.co_name for frame, _ in frames]
        assert "record" not in names
        assert "_submit" not in names
        assert failed.value.__cause__ is None
        monkeypatch.undo()
        assert board.standing().position == 0
        assert submit(board, 700, "a").position == 1

    def test_what_is_not_committed_shows_nothing(self):
        board = with_teams(make_board())
        seen = []
        decided = board_module.decided

        def watched(*arguments):
            said = decided(*arguments)
            seen.extend(map(repr, (said, *arguments)))
            return said

        board_module.decided = watched
        try:
            submit(board, 731, "a")
        finally:
            board_module.decided = decided
        assert len(seen) == 5
        assert not any("731" in text or "0.73" in text or "94" in text[:60] for text in seen[:1])

    @pytest.mark.parametrize("mode", ["ladder", "gate"])
    def test_errors_depend_on_no_value(self, mode):
        board = with_teams(make_board(mode=mode))
        texts = set()
        for count in (0, 500, 999):
            with pytest.raises(PartialPassError) as wrong:
                board.submit("alpha", right(count, 999), query=sha("a"))
            texts.add(str(wrong.value))
        assert len(texts) == 1


class TestRegistration:
    def test_other_parameters_are_refused(self, tmp_path):
        url = f"sqlite:///{tmp_path}/board.db"
        facts = {"registered": {"closes": "2026-12-01", "labels": b"digest"}}
        with_teams(make_board(url, **facts))
        make_board(url, **facts).attach()
        for changes, text in (
            ({"budget": 17}, "budget: stored 16, given 17"),
            ({"submissions": 41}, "submissions: stored 40, given 41"),
            ({"feedback": {"step": 0.02}}, "feedback.step: stored 0.01, given 0.02"),
            ({"vault_size": 1}, "vault_size"),
            ({"failure": 0.1}, "failure"),
            ({"registered": {"closes": "2027-01-01", "labels": b"digest"}}, "2027-01-01"),
            ({"registered": {"closes": "2026-12-01"}}, "labels: not the same content"),
        ):
            with pytest.raises(HoldoutMismatchError, match=text):
                make_board(url, **facts | changes).attach()

    def test_digests_of_labels_are_never_shown(self, tmp_path):
        url = f"sqlite:///{tmp_path}/board.db"
        make_board(url, registered={"labels": b"secret"}).attach()
        with pytest.raises(HoldoutMismatchError) as refused:
            make_board(url, registered={"labels": b"two"}).attach()
        text = str(refused.value)
        assert "labels: not the same content" in text
        assert "secret" not in text
        assert not any(len(word) >= 32 for word in text.replace(";", " ").split())
        assert sha("secret").encode() not in (tmp_path / "board.db").read_bytes()

    def test_the_same_labels_under_another_name_are_refused(self, tmp_path):
        url = f"sqlite:///{tmp_path}/board.db"
        make_board(url, registered={"labels": b"one"}).attach()
        with pytest.raises(HoldoutMismatchError, match="another budget"):
            make_board(url, name="again", registered={"vault": b"one"}).attach()
        make_board(url, name="other", registered={"labels": b"two"}).attach()

    @pytest.mark.parametrize(
        "changes",
        [
            {"size": 0},
            {"budget": 0},
            {"submissions": 0},
            {"failure": 0.0},
            {"statistics": {}},
            {"statistics": {"tokens": th.LoggedMean(0, 1, batch_size=10)}},
            {"statistics": {"groups": th.GroupedMean(0, 1, groups=[0] * ROWS)}},
            {"feedback": {"baseline": 1.5}},
            {"feedback": {"step": 1e-6}, "grid": 128},
            {"registered": {"x": 5}},
            {"name": ""},
        ],
        ids=str,
    )
    def test_bad_parameters(self, changes):
        with pytest.raises(InvalidArgumentError):
            make_board(**changes)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"mode": "ladder"},
            {"mode": "ladder", "step": 0.01},
            {"mode": "ladder", "step": 0.0, "baseline": 0.5},
            {"mode": "sealed", "step": 0.01},
            {"mode": "gate"},
            {"mode": "gate", "rule": "margin"},
            {"mode": "gate", "rule": "certified", "margin": 0.1},
            {"mode": "gate", "rule": "best"},
            {"mode": "open"},
        ],
        ids=str,
    )
    def test_bad_feedback(self, arguments):
        with pytest.raises(InvalidArgumentError):
            Feedback(**arguments)

    def test_a_step_is_at_least_one_answer(self):
        board = BoardHoldout(
            "memory://", name="small", size=50, statistics={"accuracy": th.ZeroOne()},
            feedback=Feedback(mode="ladder", baseline=0.5, step=0.005), budget=1, submissions=1,
        )  # fmt: skip
        assert board._registration.grid_of("accuracy") == 256


class TestStanding:
    def test_it_shows_the_best_of_each_and_what_is_left(self):
        board = with_teams(make_board(), "alpha", "beta", "gamma", releases=5)
        submit(board, 700, "a")
        submit(board, 800, "b", "beta")
        submit(board, 720, "c", "alpha")
        standing = board.standing()
        assert [answer.analyst for answer in standing.best] == ["beta", "alpha"]
        assert (standing.position, standing.budget_left) == (3, 13)
        assert [analyst.releases_left for analyst in standing.analysts] == [3, 4, 5]
        assert standing.closed_at is None
        board.close()
        assert board.standing().closed_at is not None
        assert board.standing().events == standing.events + 1

    def test_it_is_guidance_where_a_half_width_is_a_tenth(self):
        board = with_teams(make_board(), submissions=50)
        assert board.standing().claim.certified
        for k in range(8):
            submit(board, 600 + 30 * k, k)
            submit(board, 610 + 30 * k, k, "beta")
        standing = board.standing()
        assert not standing.claim.certified
        assert standing.claim.half_width["accuracy"] > 0.1
        assert board.answers()[-1].results["accuracy"].interval is None
        assert board.answers()[0].results["accuracy"].interval is not None

    def test_answers_come_by_parts(self):
        board = with_teams(make_board())
        for k in range(6):
            submit(board, 500, k, "alpha" if k % 2 else "beta")
        assert [a.position for a in board.answers(after=2, limit=3)] == [3, 4, 5]
        assert [a.position for a in board.answers("alpha", after=2)] == [4, 6]
