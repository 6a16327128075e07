"""What every ledger backend must do. Subclasses give an address that can be opened again."""

import threading
from datetime import datetime, timezone

import pytest
import torch_holdout as th
from torch_holdout.accounting.picos import PICO
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger import Entry, Ledger
from torch_holdout.ledger import holdouts as account_module

REGISTRATION = {
    "size": 10,
    "statistics": {"acc": {"kind": "bounded_mean", "low": 0.0, "high": 1.0, "units": 10}},
    "budget": 3,
}


class Fingerprint:
    """Stands in for the fingerprint of a dataset that is the content's own."""

    def __init__(self, content):
        self.content = content

    def keyed(self, key):
        return th.fingerprint([f"{self.content} {number}" for number in range(10)]).keyed(key)


def entry(query, kind="release", **changes):
    values = {
        "statistic": "acc",
        "query": query,
        "attempt": 0,
        "kind": kind,
        "grid_index": 3 if kind == "release" else None,
        "value": 0.75,
        "compared": kind == "guess",
        "opened": False,
        "units": 10,
        "charge": PICO if kind == "release" else 0,
        "seeded": False,
    }
    return Entry(**{**values, **changes})


def record_twice(account):
    account.record(entry("a"), None)
    account.record(entry("b"), None)


class LedgerContract:
    @pytest.fixture
    def address(self):
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, address):
        ledger = Ledger(address)
        self.register(ledger)
        return ledger

    def register(self, ledger, registration=REGISTRATION, name="val", **options):
        options = {"budget": 3, "private": True, "fingerprint": None, **options}
        return ledger.register(name, registration, **options)

    def open(self, ledger, name="val"):
        return ledger.account(self.register(ledger, name=name))

    def summary(self, ledger, name="val"):
        return ledger.summary(self.register(ledger, name=name))

    def spend(self, ledger, query, kind="release", threshold=None, name="val", **changes):
        with self.open(ledger, name) as account:
            return account.record(entry(query, kind, **changes), threshold)

    def test_records_are_there_after_reopening(self, ledger, address):
        assert self.spend(ledger, "a") == 2
        assert self.spend(ledger, "b", "guess", threshold=17, opened=True) == 2
        again = Ledger(address)
        with self.open(again) as account:
            assert (account.queries, account.releases, account.budget_left) == (2, 1, 2)
            assert account.find("acc", "a").kind == "release"
            assert account.find("acc", "b").kind == "guess"
            assert account.find("acc", "c") is None
            assert account.last_release("acc").position == 1
            assert account.threshold(10) == 17
        assert again.names() == ["val"]

    def test_answers_keep_their_time_and_the_name_of_their_run(self, ledger, address):
        with self.open(ledger) as account:
            account.record(entry("a"), None, "first run")
        self.spend(ledger, "b", "guess")
        found = Ledger(address).answers(self.register(ledger))
        assert [(f.position, f.kind, f.run) for f in found] == [
            (1, "release", "first run"),
            (2, "guess", None),
        ]
        times = [datetime.fromisoformat(f.asked_at) for f in found]
        assert times == sorted(times)
        assert (datetime.now(timezone.utc) - times[0]).total_seconds() < 300

    def test_one_answer_is_found_by_its_position(self, ledger, address):
        for query, kind in (("a", "release"), ("b", "guess"), ("c", "release"), ("d", "guess")):
            self.spend(ledger, query, kind)
        again, account = Ledger(address), self.register(ledger)
        every = again.answers(account)
        for position, before in ((1, 0), (2, 1), (3, 1), (4, 2)):
            summary, answer, releases = again.answer(account, position)
            assert (answer, releases) == (every[position - 1], before)
            assert summary == again.summary(account)
        for position in (-1, 0, 5, 2**70):
            assert again.answer(account, position) is None

    def test_what_is_asked_in_vain_is_counted_by_run(self, ledger, address, monkeypatch):
        times = [f"2026-01-0{day}T00:00:00.000+00:00" for day in range(1, 7)]
        self.register(ledger, name="other")
        monkeypatch.setattr(account_module, "now", iter(times).__next__)
        asked = [("acc", "one"), ("acc", None), ("acc", "one"), ("acc", "one"), ("loss", "one")]
        for statistic, run in asked:
            with self.open(ledger) as account:
                account.refuse(statistic, run)
        with self.open(ledger, "other") as account:
            account.refuse("acc", "one")
        found = Ledger(address).refusals(self.register(ledger))
        assert {(f.statistic, f.run): (f.count, f.first_at, f.last_at) for f in found} == {
            ("acc", None): (1, times[1], times[1]),
            ("acc", "one"): (3, times[0], times[3]),
            ("loss", "one"): (1, times[4], times[4]),
        }
        assert self.summary(ledger).queries == 0

    def test_names_of_runs_are_no_part_of_an_exception(self, ledger):
        def crash():
            with self.open(ledger) as account:
                account.record(entry("a"), None, "lost run")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            crash()
        with self.open(ledger) as account:
            account.record(entry("b"), None, "kept run")
        (found,) = ledger.answers(self.register(ledger))
        assert (found.position, found.run) == (1, "kept run")

    def test_an_exception_rolls_everything_back(self, ledger):
        def crash():
            with self.open(ledger) as account:
                account.record(entry("a"), 5)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            crash()
        with self.open(ledger) as account:
            assert (account.queries, account.releases) == (0, 0)
            assert account.threshold(10) is None
            assert account.find("acc", "a") is None

    def test_no_release_beyond_the_budget(self, ledger):
        for query in "abc":
            self.spend(ledger, query)
        with pytest.raises(LedgerError, match="beyond the budget"):
            self.spend(ledger, "d")
        assert self.summary(ledger).releases == 3

    def test_one_answer_per_query_and_attempt(self, ledger):
        self.spend(ledger, "a")
        with pytest.raises(LedgerError, match=r"UNIQUE constraint|unique constraint"):
            self.spend(ledger, "a")
        self.spend(ledger, "a", attempt=1)
        with self.open(ledger) as account:
            assert account.attempts("acc", "a") == 2
            assert account.find("acc", "a").position == 1
            assert account.last_release("acc").position == 2

    def test_thresholds_are_kept_replaced_and_erased(self, ledger):
        self.spend(ledger, "a", "guess", threshold=5, opened=True)
        self.spend(ledger, "b", "guess", threshold=6, units=4, opened=True)
        with self.open(ledger) as account:
            assert (account.threshold(10), account.threshold(4)) == (5, 6)
        self.spend(ledger, "c")  # a release ends the round of its own units only
        with self.open(ledger) as account:
            assert (account.threshold(10), account.threshold(4)) == (None, 6)
        self.spend(ledger, "d")
        self.spend(ledger, "e", threshold=9)  # the last release: nothing secret stays
        with self.open(ledger) as account:
            assert (account.threshold(10), account.threshold(4)) == (None, None)

    def test_money_is_exact(self, ledger):
        for index in range(3):
            self.spend(ledger, str(index), charge=PICO // 10)
        assert self.summary(ledger).spent == 0.3

    def test_without_noise_nothing_is_private(self, ledger):
        account = self.register(ledger, name="bare", private=False)
        self.spend(ledger, "a", name="bare", charge=None)
        assert ledger.summary(account).spent is None

    @pytest.mark.parametrize("change", [{"size": 11}, {"budget": 4}, {"budget": "3"}, {"other": 1}])
    def test_other_parameters_are_refused(self, ledger, change):
        with pytest.raises(HoldoutMismatchError, match=next(iter(change))):
            self.register(ledger, REGISTRATION | change)

    def test_statistics_may_be_added_only_with_known_units(self, ledger):
        def added(units, **changes):
            extra = REGISTRATION["statistics"]["acc"] | {"units": units} | changes
            return REGISTRATION | {"statistics": REGISTRATION["statistics"] | {"loss": extra}}

        with pytest.raises(HoldoutMismatchError, match="loss"):
            self.register(ledger, added(units=4))
        self.register(ledger, added(units=10))
        account = self.register(ledger, added(units=10))
        assert list(ledger.summary(account).registration["statistics"]) == ["acc", "loss"]
        with pytest.raises(HoldoutMismatchError, match="high"):
            self.register(ledger, added(units=10, high=2.0))
        with pytest.raises(HoldoutMismatchError, match="loss"):
            self.register(ledger)  # now it belongs to the holdout
        self.register(ledger, account=account)  # a handle made before it was added

    def test_a_statistic_that_cuts_otherwise_is_not_added_after_the_first_query(self, ledger):
        """It would change the certificate's theorem, which must not follow the answers."""
        blocks = REGISTRATION["statistics"]["acc"] | {"seed": 1}
        changed = {"statistics": REGISTRATION["statistics"] | {"auroc": blocks}}
        self.spend(ledger, "a")
        with pytest.raises(HoldoutMismatchError, match="auroc"):
            self.register(ledger, REGISTRATION | changed)
        self.register(ledger, REGISTRATION | changed, name="not asked yet")

    def test_a_copied_handle_never_makes_or_takes_another_account(self, ledger):
        account = self.register(ledger)
        with pytest.raises(LedgerError, match="gone"):
            self.register(ledger, name="other", account=account)
        with pytest.raises(LedgerError, match="gone"):
            self.register(ledger, account="0" * 32)
        assert ledger.names() == ["val"]

    def test_one_answer_per_transaction(self, ledger):
        with pytest.raises(LedgerError, match="second answer"), self.open(ledger) as account:
            record_twice(account)
        assert self.summary(ledger).queries == 0

    def test_renaming_does_not_refill(self, ledger):
        self.register(ledger, name="one", fingerprint=Fingerprint("data"))
        with pytest.raises(HoldoutMismatchError, match="'one'") as caught:
            self.register(ledger, name="two", fingerprint=Fingerprint("data"))
        assert "data:" not in str(caught.value)
        with pytest.raises(HoldoutMismatchError, match="not the data"):
            self.register(ledger, name="one", fingerprint=Fingerprint("other"))
        with pytest.raises(HoldoutMismatchError, match="without one"):
            self.register(ledger, fingerprint=Fingerprint("third"))
        self.register(ledger, name="one", fingerprint=Fingerprint("data"))
        self.register(ledger, name="one")
        assert ledger.summary(self.register(ledger, name="one")).fingerprinted

    def test_unknown_accounts_are_refused(self, ledger):
        mark = "0123456789abcdef" * 2
        with pytest.raises(LedgerError, match="gone or replaced") as asked, ledger.account(mark):
            pass
        with pytest.raises(LedgerError, match="gone or replaced") as read:
            ledger.summary(mark)
        assert mark not in f"{asked.value}{read.value}"

    def test_threads_take_turns(self, ledger):
        account_id = self.register(ledger, REGISTRATION | {"budget": 10}, name="busy", budget=10)

        def work(worker):
            for index in range(5):
                with ledger.account(account_id) as account:
                    if account.budget_left:
                        account.record(entry(f"{worker}-{index}"), None)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.summary(account_id).releases == 10
