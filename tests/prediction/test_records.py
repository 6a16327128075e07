"""One account for the records: every model, copy and process is charged to it."""

import copy
import dataclasses
import math
import pickle
import sqlite3

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import (
    HoldoutMismatchError,
    InvalidArgumentError,
    LedgerError,
    SealedValueError,
)
from torch_holdout.prediction import PrivacyBudget
from torch_holdout.prediction.mechanisms import (
    GNMax,
    NoisyMean,
    Setting,
    SoftMajority,
)

from support.builders.members import Members, queries
from support.builders.predictors import LABELS, make


def test_retraining_and_other_mechanisms_share_the_records_account(address):
    first = make(ledger=address)
    first(queries(3))
    retrained = make(GNMax(sigma=10.0), ensemble=Members(seed=9, num_parts=30), ledger=address)
    retrained(queries(2))
    assert retrained.status().queries == first.status().queries == 5
    assert first.status().share_spent == retrained.status().share_spent


def test_a_larger_budget_or_another_relation_under_the_same_name_is_refused(address):
    make(ledger=address)(queries(1))
    larger = PrivacyBudget(epsilon=5.0, delta=1e-5)
    with pytest.raises(HoldoutMismatchError, match="epsilon"):
        make(ledger=address, budget=larger)(queries(1))
    users = Members(relation="add-remove", unit="user")
    with pytest.raises(HoldoutMismatchError, match="relation"):
        make(ledger=address, ensemble=users)(queries(1))
    with pytest.raises(HoldoutMismatchError, match="epsilon"):
        make(ledger=address, budget=larger).plan()


def test_the_same_records_under_another_name_are_recognised(address):
    data = th.fingerprint(torch.utils.data.TensorDataset(torch.arange(6)))
    make(ledger=address, fingerprint=data)(queries(1))
    with pytest.raises(HoldoutMismatchError, match="'records'"):
        make(ledger=address, fingerprint=data, name="new records")(queries(1))


def test_two_members_per_neighbour_cost_more():
    one = make().plan()
    two = make(ensemble=Members(members_changed=2)).plan()
    assert two.epsilon_per_query == pytest.approx(2 * one.epsilon_per_query)
    assert two.queries < one.queries / 2


def test_copies_pickles_and_checkpoints_refund_nothing(address):
    predictor = make(ledger=address, ensemble=Members())
    weights = copy.deepcopy(predictor.state_dict())
    predictor(queries(4))
    for other in (copy.deepcopy(predictor), pickle.loads(pickle.dumps(predictor))):
        assert other.status().queries == predictor.status().queries
        other(queries(1))
    predictor.load_state_dict(weights)
    assert predictor.status().queries == 6


def test_models_and_mechanisms_are_not_swapped_on_a_live_predictor():
    predictor = make()
    for name, value in (("mechanism", LABELS[1]), ("ensemble", Members())):
        with pytest.raises(InvalidArgumentError, match="new PrivatePredictor"):
            setattr(predictor, name, value)


def test_a_copy_elsewhere_keeps_the_fingerprint(address):
    data = th.fingerprint(torch.utils.data.TensorDataset(torch.arange(6)))
    predictor = make(ledger=address, fingerprint=data)
    copied = pickle.loads(pickle.dumps(predictor))  # before anything was asked
    copied(queries(1))
    with pytest.raises(HoldoutMismatchError, match="'records'"):
        make(ledger=address, fingerprint=data, name="new records")(queries(1))
    records = make(fingerprint=data).records
    with pytest.raises(SealedValueError, match="attach"):
        pickle.dumps(records)


def test_an_edited_capacity_is_noticed(tmp_path):
    address = f"sqlite:///{tmp_path}/private.db"
    make(ledger=address)(queries(1))
    connection = sqlite3.connect(tmp_path / "private.db")
    connection.execute("UPDATE th_records SET capacity = capacity * 1000")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="fit together"):
        make(ledger=address)(queries(1))


def test_what_samplers_get_wrong_is_added_up_and_small():
    mean = NoisyMean.for_budget(
        epsilon=4.0, delta=1e-5, queries=1000, num_parts=20, low=0.0, high=1.0, noise="gaussian"
    )
    predictor = make(mean, ensemble=Members(num_outputs=1))
    predictor(queries(600))
    predictor(queries(400))
    each = mean.sampler_error(Setting(num_parts=20, num_outputs=1))
    expected = (1 + math.exp(4.0)) * 1000 * each
    assert predictor.status().sampler_error == pytest.approx(expected, rel=1e-6)
    fine = dataclasses.replace(mean, resolution=2**16)  # the twin: levels far finer than the noise
    assert each < fine.sampler_error(Setting(num_parts=20, num_outputs=1)) / 100
    assert "inexact sampling" in str(predictor.status())
    other = SoftMajority(eta=0.1).sampler_error(Setting(num_parts=20, num_outputs=3))
    assert other < 1e-14


def test_a_deleted_ledger_is_not_made_again(tmp_path):
    predictor = make(ledger=f"sqlite:///{tmp_path}/private.db")
    predictor(queries(1))
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(LedgerError):
        predictor(queries(1))
    with pytest.raises(LedgerError):
        pickle.loads(pickle.dumps(predictor))(queries(1))
