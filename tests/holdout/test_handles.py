"""Copies, pickles and second handles: one account each, and nothing refunds."""

import copy
import pickle

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutMismatchError, LedgerError

from support.builders.holdouts import ask, make_holdout

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


class TestIdentity:
    """Copies are handles to one account; nothing refunds."""

    def test_copies_share_one_budget(self, url):
        holdout = make_holdout(url)
        copies = [
            copy.copy(holdout),
            copy.deepcopy(holdout),
            pickle.loads(pickle.dumps(holdout)),
            copy.deepcopy({"callback": holdout})["callback"],
            make_holdout(url),
            th.ReusableHoldout.open(url, **arguments()),
        ]
        for index, one in enumerate(copies):
            ask(one, 8 * index, f"q{index}", fresh=True)
        assert [one.status().budget_left for one in copies] == [0] * len(copies)
        assert holdout.status().releases == 5

    def test_a_pickle_of_a_memory_holdout_works_in_its_process_only(self):
        holdout = make_holdout()
        twin = pickle.loads(pickle.dumps(holdout))
        ask(twin, 25, "a")
        assert holdout.status().releases == 1
        dumped = pickle.dumps(holdout)
        del holdout, twin
        with pytest.raises(LedgerError, match="gone"):
            pickle.loads(dumped).status()

    def test_a_pickle_never_recreates_a_deleted_ledger(self, url, tmp_path):
        dumped = pickle.dumps(make_holdout(url))
        (tmp_path / "holdout.db").unlink()
        with pytest.raises(LedgerError):
            pickle.loads(dumped).status()

    def test_a_pickle_does_not_carry_the_data_hash(self, url):
        data = torch.utils.data.TensorDataset(torch.arange(50))
        found = th.fingerprint(data)
        dumped = pickle.dumps(make_holdout(url, fingerprint=found))
        assert found._digest not in dumped
        assert not [value for value in found._hashes if value.tobytes() in dumped]
        assert pickle.loads(dumped).status().renaming_detected

    def test_renaming_does_not_refill(self, url):
        data = torch.utils.data.TensorDataset(torch.arange(50))
        make_holdout(url, fingerprint=th.fingerprint(data)).status()
        with pytest.raises(HoldoutMismatchError, match="does not refill"):
            make_holdout(url, name="again", fingerprint=th.fingerprint(data)).status()

    def test_one_release_is_no_plural(self):
        holdout = make_holdout()
        assert "asked 0 times: 0 releases, 0 guesses" in str(holdout.status())
        ask(holdout, 30, "q")
        assert "asked 1 time: 1 release, 0 guesses" in str(holdout.status())

    def test_without_fingerprint_status_says_so(self):
        assert "renaming is not detected" in str(make_holdout().status())

    @pytest.mark.parametrize(
        "change",
        [
            {"size": 51},
            {"budget": 6},
            {"delta": 1e-6},
            {"grid": 7},
            {"resolution": 100},
            {"seed": 3},
            {"mechanism": LAST},
            {"mechanism": th.Thresholdout(threshold=0.05, sigma=0.01, guess="train")},
            {"statistics": {"val_acc": th.BoundedMean(0.0, 2.0, mode="max")}},
            {"statistics": {"val_acc": th.BoundedMean(0.0, 1.0, mode="min")}},
            {"statistics": {"other": th.ZeroOne()}},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_any_changed_parameter_is_refused(self, url, change):
        ask(make_holdout(url), 25, "a")
        with pytest.raises(HoldoutMismatchError, match="Nothing was charged"):
            make_holdout(url, **change).status()
        assert make_holdout(url).status().queries == 1

    def test_construction_touches_nothing(self, url, tmp_path):
        make_holdout(url)
        assert list(tmp_path.iterdir()) == []
        th.ReusableHoldout.open(url, **arguments())
        assert (tmp_path / "holdout.db").exists()

    def test_the_address_survives_a_change_of_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        holdout = make_holdout("sqlite:///holdout.db")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ask(pickle.loads(pickle.dumps(holdout)), 25, "a")
        assert [f.name for f in tmp_path.glob("*.db")] == ["holdout.db"]


def arguments():
    return {
        "name": "val",
        "size": 50,
        "statistics": {"val_acc": th.ZeroOne()},
        "budget": 5,
        "mechanism": th.Thresholdout(threshold=0.05, sigma=0.01, guess="last"),
    }
