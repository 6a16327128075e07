"""What every ledger backend must do for accounts of training records."""

import threading

import pytest
from torch_holdout.errors import BudgetExhaustedError, HoldoutMismatchError, LedgerError
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.records import ChargeEntry, Debit

from support.contracts.ledger_contract import REGISTRATION, Fingerprint, entry

RECORDS = {"epsilon": 1.0, "delta": None, "relation": "replace-one", "derived": {"order": None}}


def charge(amount, queries=1):
    return ChargeEntry(
        purpose="prediction", detail="{}", queries=queries, charge=amount, variation=7, seeded=False
    )


def register(ledger, name="records", registration=RECORDS, capacity=100, **options):
    options = {"fingerprint": None, **options}
    return ledger.register_records(name, registration, capacity=capacity, **options)


def spend(ledger, account, amount, queries=1):
    with ledger.records(account) as opened:
        opened.charge(charge(amount, queries))


class RecordsContract:
    @pytest.fixture
    def address(self):
        raise NotImplementedError

    def test_charges_add_up_and_stop_at_the_capacity(self, address):
        ledger = Ledger(address)
        account = register(ledger)
        spend(ledger, account, 60, queries=6)
        with pytest.raises(LedgerError, match="beyond the budget"):
            spend(ledger, account, 41)
        spend(ledger, account, 40, queries=4)
        found = ledger.records_summary(account, check=True)
        assert (found.spent, found.queries, found.charges, found.variation) == (100, 10, 2, 14)
        with pytest.raises(LedgerError, match="beyond the budget"):
            spend(ledger, account, 1)

    def test_charges_are_listed(self, address):
        ledger = Ledger(address)
        account = register(ledger)
        spend(ledger, account, 60, queries=6)
        spend(ledger, account, 40, queries=4)
        found = Ledger(address).charges(account)
        assert [(c.position, c.purpose, c.queries, c.charge) for c in found] == [
            (1, "prediction", 6, 60),
            (2, "prediction", 4, 40),
        ]
        assert found[0].asked_at <= found[1].asked_at

    def test_an_exception_charges_nothing(self, address):
        ledger = Ledger(address)
        account = register(ledger)

        def fail():
            with ledger.records(account) as opened:
                opened.charge(charge(60))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert ledger.records_summary(account, check=True).spent == 0

    @pytest.mark.parametrize("amount", [-1, -100])
    def test_nothing_refunds(self, address, amount):
        ledger = Ledger(address)
        account = register(ledger)
        spend(ledger, account, 60)
        with pytest.raises(LedgerError, match="beyond the budget"):
            spend(ledger, account, amount)
        assert ledger.records_summary(account, check=True).spent == 60

    def test_one_charge_per_transaction(self, address):
        ledger = Ledger(address)
        account = register(ledger)

        def twice():
            with ledger.records(account) as opened:
                opened.charge(charge(1))
                opened.charge(charge(1))

        with pytest.raises(LedgerError, match="second charge"):
            twice()
        assert ledger.records_summary(account).spent == 0

    def test_the_same_parameters_attach_and_the_stored_order_stands(self, address):
        ledger = Ledger(address)
        account = register(ledger)
        again = register(ledger, registration=RECORDS | {"derived": {"order": 7.0}}, capacity=999)
        assert again == account
        found = ledger.records_summary(account)
        assert found.registration["derived"] == {"order": None}
        assert found.capacity == 100

    @pytest.mark.parametrize("change", [{"epsilon": 2.0}, {"delta": 1e-5}, {"relation": "other"}])
    def test_other_parameters_are_refused(self, address, change):
        ledger = Ledger(address)
        register(ledger)
        with pytest.raises(HoldoutMismatchError, match=next(iter(change))):
            register(ledger, registration=RECORDS | change)

    def test_renamed_data_is_recognised(self, address):
        ledger = Ledger(address)
        register(ledger, fingerprint=Fingerprint("a"))
        with pytest.raises(HoldoutMismatchError, match="'records'"):
            register(ledger, name="new", fingerprint=Fingerprint("a"))
        register(ledger, name="other data", fingerprint=Fingerprint("b"))
        assert list(ledger.records_accounts()) == ["records", "other data"]

    def test_a_handle_to_a_lost_account_makes_no_new_one(self, address):
        ledger = Ledger(address)
        register(ledger)
        with pytest.raises(LedgerError, match="gone or replaced"):
            register(ledger, account="0" * 32)
        with pytest.raises(LedgerError, match="gone or replaced"):
            ledger.records_summary("0" * 32)

    def test_threads_share_one_capacity(self, address):
        ledger = Ledger(address)
        account = register(ledger)
        granted = []

        def work():
            own = Ledger(address)
            for _ in range(30):
                with own.records(account) as opened:
                    if opened.left >= 3:
                        opened.charge(charge(3))
                        granted.append(3)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(granted) == 99 == ledger.records_summary(account, check=True).spent

    def test_a_debit_and_an_answer_are_one_transaction(self, address):
        ledger = Ledger(address)
        records = register(ledger)
        holdout = ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)
        debit = Debit(address=address, account=records, each=25, most=2, detail="{}", seeded=False)
        with ledger.account(holdout) as account:
            debit.pay(account.records(debit), steps=2)
            account.record(entry("a"), None)
        assert ledger.records_summary(records, check=True).spent == 50

        def fail():
            with ledger.account(holdout) as account:
                debit.pay(account.records(debit), steps=1)
                account.record(entry("b"), None)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert ledger.records_summary(records).spent == 50
        assert ledger.summary(holdout).queries == 1
        spend(ledger, records, 10)
        # 40 are left: enough for one step, but a refusal must not depend on the outcome.
        with pytest.raises(BudgetExhaustedError), ledger.account(holdout) as account:
            account.records(debit)
