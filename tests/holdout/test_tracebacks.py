"""What leaves with an error that was raised inside the door."""

import pytest
import torch_holdout as th
from torch_holdout.errors import HoldoutError, LedgerError
from torch_holdout.ledger.holdouts import Account

from support.builders.holdouts import ask, make_holdout

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


class TestTracebacks:
    """Some loggers print local variables: neither raw sums nor uncommitted answers may be there."""

    RAW = 37 * 65536

    def everything(self, error):
        """Text of an error, its chain, and the locals of all frames inside the library."""
        texts = []
        while error is not None:
            frames = error.__traceback__
            while frames is not None:
                if "torch_holdout" in frames.tb_frame.f_code.co_filename:
                    texts.append(repr(frames.tb_frame.f_locals))
                frames = frames.tb_next
            texts += [repr(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
        return "".join(texts)

    def failing(self, holdout, kind=HoldoutError):
        with pytest.raises(kind) as caught:
            ask(holdout, 37, "a")
        return caught.value

    def test_ledger_gone(self, url, tmp_path):
        holdout = make_holdout(url)
        holdout.status()
        (tmp_path / "holdout.db").unlink()
        assert str(self.RAW) not in self.everything(self.failing(holdout, LedgerError))

    @pytest.mark.parametrize("where", ["statement", "commit", "after"])
    def test_a_failing_write_hides_the_answer(self, url, monkeypatch, where):
        holdout = make_holdout(url, mechanism=LAST, grid=1000)
        holdout.status()
        record = Account.record

        def failing(self, entry, *more):
            if where == "statement":
                self._connection.exec_driver_sql("SELECT * FROM missing")
            left = record(self, entry, *more)
            if where == "after":
                raise ZeroDivisionError(entry.value)
            self._connection.exec_driver_sql("ROLLBACK")  # the commit then finds no transaction
            return left

        monkeypatch.setattr(Account, "record", failing)
        error = self.failing(holdout)
        assert error.__context__ is None
        assert error.__cause__ is None
        shown = self.everything(error)
        assert "TypeError" not in shown  # it failed where it should
        assert "0.74" not in shown  # 37 of 50
        assert str(self.RAW) not in shown

    def test_an_interrupt_is_passed_on_bare(self, monkeypatch):
        holdout = make_holdout(mechanism=th.Thresholdout(threshold=0.1, sigma=0.1, guess="last"))
        holdout.status()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("torch_holdout.mechanisms.rounds.noisy_answer", interrupted)
        assert str(self.RAW) not in self.everything(self.failing(holdout, KeyboardInterrupt))

    def test_twin_that_keeps_the_frames_is_caught(self, monkeypatch, url, tmp_path):
        monkeypatch.setattr("torch_holdout.holdout.door.without_trace", lambda action: action())
        holdout = make_holdout(url, mechanism=LAST)

        def failing(self, query):
            raise ZeroDivisionError

        monkeypatch.setattr(th.Thresholdout, "decide", failing)
        error = self.failing(holdout, ZeroDivisionError)
        frames, found = error.__traceback__, []
        while frames is not None:
            found += [getattr(v, "total", None) for v in frames.tb_frame.f_locals.values()]
            frames = frames.tb_next
        assert self.RAW in found
