"""Data that an account has already: under another name, in another form, split anew."""

import hashlib
import hmac
import re
import shutil
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch.utils.data import Subset, TensorDataset
from torch_holdout._fingerprints.sketch import Common
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.same_data import much

ASSETS = Path(__file__).parent.parent / "assets"
SPLIT = "split once, outside the objective, with a fixed generator seed"


def data(size=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 3, generator=generator), torch.arange(size) % 4)


def join(*parts):
    return [example for part in parts for example in part]


def first(count, seed=0):
    return Subset(data(seed=seed), range(count))


# The data in another form: how many of its records are those of the account.
FORMS = {
    "the same": (data(), None),
    "float64": (TensorDataset(data().tensors[0].double(), data().tensors[1].float()), None),
    "dictionaries": ([{"x": x, "y": y} for x, y in data()], None),
    "reordered": (Subset(data(), list(reversed(range(200)))), None),
    "one record fewer": (first(199), "100 % of its records (199 of 199 compared)"),
    "a few records more": (join(data(), first(5, 1)), "98 % of its records (200 of 205 compared)"),
    "5 % replaced": (join(first(190), first(10, 1)), "95 % of its records (190 of 200 compared)"),
    "oversampled": (join(data(), data()), "100 % of its records (200 of 200 compared)"),
    "a tenth of it": (first(20), "100 % of its records (20 of 20 compared)"),
    "a tenth in more": (join(first(20), data(seed=1)), "9 % of its records (20 of 220 compared)"),
}
NEW = {
    "of the same shape": data(seed=1),
    "3 % in common": join(first(6), first(194, 1)),
    "half precision": TensorDataset(data().tensors[0].half(), data().tensors[1]),
}


def register(ledger, name, dataset, **changes):
    registration = {"size": len(dataset), "statistics": {}, "budget": 3, **changes}
    found = th.fingerprint(dataset)
    return ledger.register(name, registration, budget=3, private=True, fingerprint=found)


def register_records(ledger, name, dataset):
    found = th.fingerprint(dataset)
    return ledger.register_records(name, {"derived": {}}, capacity=9, fingerprint=found)


@pytest.fixture
def ledger(address):
    ledger = Ledger(address)
    register(ledger, "one", data())
    register_records(ledger, "patients", data())
    return ledger


class TestAnotherName:
    @pytest.mark.parametrize("which", FORMS)
    def test_the_same_data_does_not_refill(self, ledger, which):
        dataset, overlap = FORMS[which]
        for enrol, name in ((register, "one"), (register_records, "patients")):
            with pytest.raises(HoldoutMismatchError, match="does not refill") as caught:
                enrol(ledger, "two", dataset)
            text = str(caught.value)
            assert f"are in {name!r}" in text if overlap else f"already {name!r}" in text
            assert overlap is None or overlap in text
            assert not re.search(r"[0-9a-f]{16}", text)  # no hash, no account's id
        assert ledger.names() == ["one"]
        assert list(ledger.records_accounts()) == ["patients"]

    @pytest.mark.parametrize("which", NEW)
    def test_new_data_is_welcome(self, ledger, which):
        register(ledger, "two", NEW[which])
        register_records(ledger, "more patients", NEW[which])
        assert ledger.names() == ["one", "two"]

    def test_the_account_with_most_of_it_is_named(self, ledger):
        register(ledger, "two", data(seed=1))
        with pytest.raises(HoldoutMismatchError, match=r"80 % of its records .* are in 'two'"):
            register(ledger, "three", join(first(40), first(160, 1)))

    @pytest.mark.parametrize("address", ["sqlite"], indirect=True)
    def test_large_data_is_estimated(self, ledger):
        """9,500 of 10,000 records: 1,024 compared on average, beyond 5 % for certain."""
        large = data(10_000, seed=2)
        register(ledger, "large", large)
        replaced = join(Subset(large, range(9_500)), Subset(data(500, seed=3), range(500)))
        with pytest.raises(HoldoutMismatchError, match=r"about 9\d % of its records .* 'large'"):
            register(ledger, "again", replaced)
        register(ledger, "foreign", data(10_000, seed=4))

    def test_records_that_repeat_meet_again_by_chance(self, ledger):
        """A table of a few categories, and another sample of it."""
        generator = torch.Generator().manual_seed(0)
        tables = [torch.randint(4, (200, 3), generator=generator) for _ in range(2)]
        assert th.overlap(*(TensorDataset(table) for table in tables)).share_of_first > 0.8
        for name, table in zip(("two", "three"), tables, strict=True):
            register(ledger, name, TensorDataset(table))
        with pytest.raises(HoldoutMismatchError, match="already 'two'"):
            register(ledger, "four", TensorDataset(tables[0].float()))


def misses(share, compared, seeds=2000):
    """How often a share is called much, among seeded samples."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(seeds, compared, generator=generator) < share
    found = [
        much(Common(compared, compared, int(both), bound=1), tolerated=0.05)
        for both in drawn.sum(1).tolist()
    ]
    return sum(found) / seeds


def test_error_rates_of_the_estimate():
    """Stated: 1 %; the bound is conservative. With these seeds there are no false alarms."""
    assert misses(0.05, 1000) <= 0.01
    assert misses(0.05, 30) <= 0.01
    assert misses(0.10, 1000) >= 0.99
    assert misses(0.0, 1000) == 0


def test_twin_without_the_error_rate_is_caught(monkeypatch):
    monkeypatch.setattr("torch_holdout.ledger.same_data._ERROR_RATE", 1.0)
    assert misses(0.05, 1000) > 0.01


class TestItsOwnName:
    @pytest.mark.parametrize("which", [w for w, (_, overlap) in FORMS.items() if overlap is None])
    def test_its_own_data_in_any_form_attaches(self, ledger, which):
        assert register(ledger, "one", FORMS[which][0]) == ledger.accounts()["one"]
        register_records(ledger, "patients", FORMS[which][0])

    def test_a_new_split_is_told_how_to_repair_it(self, ledger):
        split = join(first(40), first(160, 1))
        overlap = r"20 % of its records \(40 of 200 compared\) are in the account's data"
        for enrol, name in ((register, "one"), (register_records, "patients")):
            with pytest.raises(HoldoutMismatchError, match=f"{overlap}.*{SPLIT}") as caught:
                enrol(ledger, name, split)
            assert "Nothing was charged" in str(caught.value)

    def test_foreign_data(self, ledger):
        with pytest.raises(HoldoutMismatchError, match=r"0 % of its records .*0 of 200") as caught:
            register(ledger, "one", data(seed=1))
        assert SPLIT not in str(caught.value)

    def test_an_account_without_a_fingerprint_takes_none_later(self, ledger):
        """Also none of records that version 0.1.0 could not hash."""
        mixed = [np.array([number, "text"], dtype=object) for number in range(5)]
        assert th.fingerprint(mixed).keyed(b"k").earlier is None
        for name, dataset in (("new", data(seed=1)), ("mixed", mixed)):
            registration = {"size": len(dataset), "statistics": {}, "budget": 3}
            ledger.register(name, registration, budget=3, private=True, fingerprint=None)
            with pytest.raises(HoldoutMismatchError, match="it was created without one"):
                register(ledger, name, dataset)

    def test_one_record_fewer_or_replaced(self, ledger):
        with pytest.raises(HoldoutMismatchError, match=r"stored 200, given 199.*100 % of its"):
            register(ledger, "one", first(199))
        with pytest.raises(HoldoutMismatchError, match=r"99\.5 % of its records"):
            register(ledger, "one", join(first(199), first(1, 1)))

    @pytest.mark.parametrize("address", ["sqlite"], indirect=True)
    def test_one_record_of_many_is_noticed_although_the_sketch_may_lack_it(self, ledger):
        large = data(5_000, seed=2)
        register(ledger, "large", large)
        for number in range(3):
            others = [n for n in range(5_000) if n != number]
            changed = join(Subset(large, others), first(1, 1))
            with pytest.raises(HoldoutMismatchError, match="is not the data"):
                register(ledger, "large", changed)


class TestOlderVersions:
    def fingerprinted(self, tmp_path, dataset):
        """A ledger of version 3 whose account has the fingerprint that 0.1.0 would have made."""
        path = tmp_path / "holdout.db"
        shutil.copy(ASSETS / "ledger_v3.db", path)
        path.chmod(0o600)
        with sqlite3.connect(path) as connection:
            (key,) = connection.execute("SELECT secret FROM th_secret_keys").fetchone()
            digest = th.fingerprint(dataset)._digest
            earlier = hmac.new(key, digest, hashlib.sha256).hexdigest()
            connection.execute("UPDATE th_holdouts SET fingerprint = ? WHERE id = 1", [earlier])
        connection.close()
        return f"sqlite:///{path}", earlier

    def open(self, url, dataset, name="val"):
        return th.ReusableHoldout.open(
            url,
            name=name,
            size=50,
            statistics={"val_loss": th.BoundedMean(0, 5), "val_acc": th.ZeroOne()},
            mechanism=th.Thresholdout(threshold=0.05, sigma=0.01, guess="last"),
            budget=5,
            fingerprint=None if dataset is None else th.fingerprint(dataset),
        )

    def test_a_fingerprint_of_version_1_is_recognised(self, tmp_path):
        path = tmp_path / "holdout.db"
        shutil.copy(ASSETS / "ledger_v1.db", path)
        path.chmod(0o600)
        own = {"size": 4, "statistics": {"val_acc": th.ZeroOne()}, "mechanism": th.Ladder(step=0.1)}

        def enrol(name, values):
            found = th.fingerprint(TensorDataset(values))
            url = f"sqlite:///{path}"
            return th.ReusableHoldout.open(url, name=name, budget=2, fingerprint=found, **own)

        with pytest.raises(HoldoutMismatchError, match="already 'other'"):
            enrol("new", torch.arange(4))
        with pytest.raises(HoldoutMismatchError, match="is not the data"):
            enrol("other", torch.arange(4).float())  # nothing is known but the old digest
        enrol("other", torch.arange(4))
        enrol("other", torch.arange(4).float())
        with pytest.raises(HoldoutMismatchError, match="are in 'other'"):
            enrol("new", torch.arange(4).float())
        assert verify(f"sqlite:///{path}").findings == []

    def test_the_account_keeps_its_fingerprint_and_gets_a_sketch(self, tmp_path):
        own = Subset(data(), range(50))
        url, earlier = self.fingerprinted(tmp_path, own)
        assert "parts of the data are not detected" in str(self.open(url, None).status())
        before = self.open(url, own).status()
        assert "not detected" not in str(before)
        for form in (own, [{"x": x.double(), "y": y} for x, y in own]):
            assert self.open(url, form).status() == before
        with pytest.raises(HoldoutMismatchError, match="90 % of its records"):
            self.open(url, join(Subset(data(), range(45)), first(5, 1)))
        with pytest.raises(HoldoutMismatchError, match=r"96 % of its .* are in 'val'"):
            self.open(url, join(Subset(data(), range(48)), first(2, 1)), name="new")
        with sqlite3.connect(tmp_path / "holdout.db") as connection:
            rows = connection.execute("SELECT fingerprint FROM th_holdouts").fetchall()
        connection.close()
        assert (earlier,) in rows
        assert verify(url).findings == []


def test_at_most_one_of_two_names_at_once(tmp_path):
    """Six threads, each with most of the same data: the first has the account."""
    url = f"sqlite:///{tmp_path}/holdout.db"
    register(Ledger(url), "other", data(seed=9))
    outcomes, ready = [], threading.Barrier(6)

    def work(number):
        mine = join(first(195), first(5, seed=1 + number))
        ledger = Ledger(url)
        ready.wait()
        try:
            outcomes.append(register(ledger, f"name {number}", mine))
        except HoldoutMismatchError as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(HoldoutMismatchError) == 5
    assert len(Ledger(url).names()) == 2


@pytest.mark.parametrize("change", ["hashes = x'0102'", "bound = 0", "size = 0", "size = 'many'"])
def test_a_damaged_sketch_is_refused(tmp_path, change):
    path = tmp_path / "holdout.db"
    url = f"sqlite:///{path}"
    register(Ledger(url), "one", data())
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE th_sketches SET {change}")
    connection.close()
    with pytest.raises(LedgerError, match="sketch"):
        register(Ledger(url), "two", data(seed=1))


def test_the_ledger_and_handles_hold_no_unkeyed_hash(tmp_path):
    path = tmp_path / "holdout.db"
    found = th.fingerprint(data())
    register(Ledger(f"sqlite:///{path}"), "one", data())
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert found._digest not in stored
    hashes = [value.tobytes() for value in found._hashes]
    assert not [each for each in hashes if each in stored or each[::-1] in stored]
