"""A cut that is registered: parts of the same dataset under another cut are refused."""

import pickle
import re
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch.utils.data import Subset, TensorDataset
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger import Ledger, same_data, schema, verify
from torch_holdout.ledger.headers import covered

from support.builders.holdouts import make_holdout, sums_of

ASSETS = Path(__file__).parent.parent / "assets"
COPIES = [*range(150), *range(50)]  # 50 of 150 records are there twice


def data(size=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 3, generator=generator), torch.arange(size) % 4)


def cut(seed=0, display=0.2, vault=0.1, **changes):
    """Return display, vault and rest."""
    return th.split(data(), display=display, vault=vault, seed=seed, **changes)


def register(ledger, name, dataset, plain=False):
    if plain:  # the same records, and nothing about a cut
        dataset = Subset(dataset.dataset, dataset.indices)
    found = None if dataset is None else th.fingerprint(dataset)
    registration = {"statistics": {}, "budget": 3}
    return ledger.register(name, registration, budget=3, private=True, fingerprint=found)


def register_records(ledger, name, dataset):
    found = th.fingerprint(dataset)
    return ledger.register_records(name, {"derived": {}}, capacity=9, fingerprint=found)


@pytest.fixture
def ledger(address):
    return Ledger(address)


OTHERS = {
    "another seed": {"seed": 1},
    "other shares": {"display": 0.21},
    "groups": {"groups": [number // 2 for number in range(200)]},
}


class TestAnotherAccount:
    @pytest.mark.parametrize("which", OTHERS)
    @pytest.mark.parametrize("enrol", [register, register_records])
    def test_another_cut_is_refused(self, ledger, which, enrol):
        register(ledger, "val", cut()[2])
        for part in cut(**OTHERS[which]):
            with pytest.raises(
                HoldoutMismatchError, match="another cut of the same data"
            ) as caught:
                enrol(ledger, "two", part)
            text = str(caught.value)
            assert "'val' was created with (display 0.2, vault 0.1, seed 0, part rest)" in text
            assert str(part.cut) in text
            assert "Nothing was charged" in text
            assert not re.search(r"[0-9a-f]{16}", text)  # no hash, no account's id
        assert ledger.names() == ["val"]
        assert ledger.records_accounts() == {}

    def test_another_order_of_the_dataset_is_another_cut(self, ledger):
        register(ledger, "val", cut()[2])
        turned = Subset(data(), list(reversed(range(200))))
        with pytest.raises(HoldoutMismatchError, match="with other groups or in another order"):
            register(ledger, "two", th.split(turned, display=0.2, vault=0.1)[1])

    def test_other_parts_of_the_cut_are_welcome(self, ledger):
        display, vault, rest = cut()
        register(ledger, "val", rest)
        register(ledger, "final", pickle.loads(pickle.dumps(vault)))
        register(ledger, "watched", display)
        assert ledger.names() == ["val", "final", "watched"]
        assert verify(ledger.address).findings == []

    def test_parts_with_repeated_records(self, ledger):
        repeated = Subset(data(), COPIES)
        parts = th.split(repeated, display=0.2, vault=0.3, groups="records")
        for name, part in zip(("a", "b", "c"), parts, strict=True):
            register(ledger, name, part)
        assert ledger.names() == ["a", "b", "c"]
        with pytest.raises(HoldoutMismatchError, match="another cut"):
            register(ledger, "d", th.split(repeated, vault=0.1, groups="records")[0])

    def test_other_datasets_are_cut_as_they_like(self, ledger):
        register(ledger, "val", cut()[2])
        register(ledger, "two", th.split(data(seed=1), display=0.5, seed=9)[1])
        assert ledger.names() == ["val", "two"]

    def test_a_refused_part_leaves_nothing(self, ledger):
        register(ledger, "val", cut()[2])
        with pytest.raises(HoldoutMismatchError):
            register(ledger, "two", cut(seed=1)[1])
        assert len(rows(ledger)) == 1
        assert verify(ledger.address).findings == []

    @pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
    def test_of_two_cuts_at_once_one_is_registered(self, address):
        """Small vaults of two cuts: they have hardly a record in common."""
        vaults = [th.split(data(), vault=0.04, seed=seed)[0] for seed in range(4)]
        ledger, begin, refused = Ledger(address), threading.Barrier(4), []
        register(ledger, "other", data(seed=1))

        def enrol(number):
            found = th.fingerprint(vaults[number])
            begin.wait()
            try:
                Ledger(address).register(
                    f"vault {number}", {"statistics": {}}, budget=1, private=True, fingerprint=found
                )
            except HoldoutMismatchError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=enrol, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 3
        assert all("another cut" in text for text in refused)
        assert len(ledger.names()) == 2


class TestTheSameAccount:
    def test_it_opens_with_its_own_cut_or_without_a_fingerprint(self, ledger):
        first = register(ledger, "val", cut()[2])
        assert register(ledger, "val", cut()[2]) == first
        assert register(ledger, "val", None) == first
        assert register(ledger, "val", cut()[2], plain=True) == first

    @pytest.mark.parametrize("which", OTHERS)
    def test_another_cut_is_refused(self, ledger, which):
        register(ledger, "val", cut()[2])
        with pytest.raises(
            HoldoutMismatchError, match=r"cut: stored display 0\.2, vault 0\.1, seed 0"
        ):
            register(ledger, "val", cut(**OTHERS[which])[2])

    def test_another_part_is_refused(self, ledger):
        register(ledger, "val", cut()[2])
        with pytest.raises(HoldoutMismatchError, match=r"part rest, given .* part vault; finger"):
            register(ledger, "val", cut()[1])

    def test_the_same_records_as_a_part_of_another_cut_are_refused(self, ledger):
        """The rest is the same whether the other 40 % are one part or two."""
        one = th.split(list(range(10)), display=0.4)[1]
        other = th.split(list(range(10)), display=0.1, vault=0.3)[2]
        assert one.indices == other.indices
        register(ledger, "val", one)
        with pytest.raises(HoldoutMismatchError, match=r"but: cut: stored display 0\.4"):
            register(ledger, "val", other)

    def test_the_same_records_of_another_whole_are_refused(self, ledger):
        rest = th.split(list(range(10)), display=0.4)[1]
        shown = [number + 100 if number not in rest.indices else number for number in range(10)]
        register(ledger, "val", rest)
        with pytest.raises(HoldoutMismatchError, match=r"but: cut: .* of another dataset"):
            register(ledger, "val", th.split(shown, display=0.4)[1])

    def test_an_account_without_a_cut_gets_none(self, ledger):
        register(ledger, "val", cut()[2], plain=True)
        with pytest.raises(HoldoutMismatchError, match="cut: it was created without one"):
            register(ledger, "val", cut()[2])
        register(ledger, "bare", None)
        with pytest.raises(HoldoutMismatchError, match="fingerprint: it was created without one"):
            register(ledger, "bare", th.split(data(seed=1), display=0.2)[1])


class TestAfterWatching:
    """A display is watched; then the dataset is cut anew, and the other vault sealed."""

    def watched_and_recut(self):
        display, vault = th.split(data(1000), display=0.5, vault=0.04)[:2]
        again = th.split(data(1000), display=0.5, vault=0.04, seed=1)[1]
        return display, vault, again

    def open(self, url, name, part):
        return make_holdout(
            url, name=name, size=len(part), fingerprint=th.fingerprint(part), budget=1
        )

    def test_a_second_cut_is_refused_at_the_door(self, address):
        _, vault, again = self.watched_and_recut()
        first = self.open(address, "vault", vault)
        first.release("val_acc", sums_of(first, torch.ones(40, dtype=torch.bool)), query="a")
        second = self.open(first.address, "new vault", again)
        with pytest.raises(HoldoutMismatchError, match="another cut"):
            second.release("val_acc", sums_of(second, torch.ones(40, dtype=torch.bool)), query="a")

    def test_the_twin_without_registration_admits_watched_examples(self, address, monkeypatch):
        """Vaults of 4 % have too few records in common for the comparison of sketches."""
        display, vault, again = self.watched_and_recut()
        monkeypatch.setattr(same_data, "require_same_cut", lambda *_: None)
        first = self.open(address, "vault", vault)
        assert first.status().budget == 1
        second = self.open(first.address, "new vault", again)
        assert second.status().budget == 1
        assert th.overlap(display, again).shared >= 10  # of 40, they were watched

    def test_without_a_fingerprint_status_says_so(self):
        assert "neither is another cut of the data" in str(make_holdout().status())
        rest = cut()[2]
        holdout = make_holdout(size=len(rest), fingerprint=th.fingerprint(rest))
        assert "not detected" not in str(holdout.status())


def rows(ledger):
    with ledger._transaction(reads_only=True) as connection:
        return connection.exec_driver_sql("SELECT account, whole, cut FROM th_cuts").all()


class TestWhatIsKept:
    def test_the_whole_is_kept_under_the_ledgers_secret(self, tmp_path):
        kept = []
        for number in range(2):
            ledger = Ledger(f"sqlite:///{tmp_path}/{number}.db")
            account = register(ledger, "val", cut()[2])
            [(owner, whole, text)] = rows(ledger)
            assert owner == account
            assert re.fullmatch(r"display 0\.2, vault 0\.1, seed 0, part rest; [0-9a-f]{32}", text)
            kept.append((whole, text))
        assert kept[0][0] != kept[1][0]
        assert kept[0][1] != kept[1][1]

    def test_the_longest_text_fits(self, tmp_path):
        ledger = Ledger(f"sqlite:///{tmp_path}/long.db")
        longest = cut(2**63 - 1, 0.1 + 0.2, 0.30000000000000004, groups=list(range(200)))
        register(ledger, "val", longest[0])
        assert len(rows(ledger)[0][2]) <= 200

    def test_accounts_without_a_cut_have_none(self, ledger):
        register(ledger, "val", data())
        assert rows(ledger) == []


EDITS = {
    "another text": "UPDATE th_cuts SET cut = replace(cut, 'seed 0', 'seed 1')",
    "another whole": "UPDATE th_cuts SET whole = 'v'",
    "deleted": "DELETE FROM th_cuts",
    "of another account": (
        "UPDATE th_cuts SET account = (SELECT account FROM th_holdouts WHERE name = 'b')"
    ),
    "added": (
        "INSERT INTO th_cuts SELECT account, 'v', 'display 0.2; 0' FROM th_holdouts "
        "WHERE name = 'b'"
    ),
    "of no account": "INSERT INTO th_cuts VALUES ('0', 'v', 'display 0.2; 0')",
}


class TestVerify:
    def found(self, url, edit, statement):
        ledger = Ledger(url)
        register(ledger, "a", cut()[2])
        register(ledger, "b", data(seed=1))
        assert verify(url).findings == []
        edit(statement)
        return [str(finding) for finding in verify(url).findings]

    @pytest.mark.parametrize("which", EDITS)
    def test_an_edit_is_found(self, tmp_path, which):
        path = tmp_path / "holdout.db"
        self.check(which, self.found(f"sqlite:///{path}", lambda s: edited(path, s), EDITS[which]))

    @pytest.mark.parametrize("which", EDITS)
    def test_an_edit_on_a_server_is_found(self, postgres, which):
        url = postgres.new_url()
        self.check(which, self.found(url, lambda s: postgres.edit(url, s), EDITS[which]))

    def check(self, which, findings):
        accounts = {"added": ["b"], "of another account": ["a", "b"], "of no account": []}
        expected = [
            f"{name!r}: its fingerprint, sketch or cut was edited: its header says otherwise"
            for name in accounts.get(which, ["a"])
        ]
        if which == "of no account":
            expected = ["the ledger: a cut without an account"]
        assert findings == expected

    def test_a_header_does_not_cover_an_edited_cut(self, tmp_path):
        path = tmp_path / "holdout.db"
        ledger = Ledger(f"sqlite:///{path}")
        account = register(ledger, "a", cut()[2])
        edited(path, EDITS["another text"])
        with (
            ledger._transaction() as connection,
            pytest.raises(LedgerError, match="edited or lost"),
            covered(connection, schema.holdouts, account, ledger.address),
        ):
            pass

    @pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
    def test_headers_of_older_ledgers_stay(self, tmp_path, version):
        path = tmp_path / "old.db"
        shutil.copy(ASSETS / f"ledger_v{version}.db", path)
        path.chmod(0o600)
        assert verify(f"sqlite:///{path}").findings == []
        before = headers(path) if version >= 4 else None
        ledger = Ledger(f"sqlite:///{path}")
        register(ledger, "val of now", th.split(data(seed=5), display=0.2)[1])
        assert verify(f"sqlite:///{path}").findings == []
        assert before is None or headers(path)[:-1] == before


def edited(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def headers(path):
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT * FROM th_headers ORDER BY position").fetchall()
    connection.close()
    return found
