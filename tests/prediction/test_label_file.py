"""A file of labels is taken only by the account, model, rule, budget and inputs it is of."""

import copy
import hashlib
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout._fingerprints.hashing import digest
from torch_holdout.accounting import compose
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import (
    EmbeddedRecords,
    GNMax,
    NeighbourVotes,
    PrivacyBudget,
    SoftMajority,
    distill,
)
from torch_holdout.prediction.lightning import PrivatePredictor

from support.builders.ensembles import trainer
from support.builders.members import Members, queries

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
RULE = SoftMajority(eta=0.1)


def predictor_of(url, *, epsilon=9.0, delta=1e-5, members=None, rule=RULE):
    budget = PrivacyBudget(epsilon=epsilon, delta=delta)
    return PrivatePredictor(members or Members(), rule, budget=budget, ledger=url, name="records")


def run(predictor, file, count=40):
    inputs = DataLoader(TensorDataset(queries(count)), batch_size=9)
    adam = partial(torch.optim.Adam, lr=0.05)
    return distill(
        predictor, inputs, nn.Linear(4, 3), trainer=trainer(), optimizer=adam, labels=file
    )


@pytest.fixture
def file(tmp_path):
    return tmp_path / "labels.pt"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/private.db"


def refused(predictor, file, sentence, count=40):
    """Whether a file is refused, before a charge, and left as it is."""
    before, asked = file.read_bytes(), predictor.status().queries
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        run(predictor, file, count)
    assert "Nothing was charged" in str(caught.value)
    return file.read_bytes() == before and predictor.status().queries == asked


def test_labels_of_another_account_are_refused(tmp_path, url, file):
    """Both accounts have one name; the second would state the epsilon of its smaller budget."""
    paid = run(predictor_of(url), file)
    other = f"sqlite:///{tmp_path}/other.db"
    small = predictor_of(other, epsilon=1.0)
    assert paid.epsilon > 1.5
    assert refused(small, file, "another account")
    assert Ledger(other).find_records("records") is None  # not even made
    small(queries(1))
    assert refused(small, file, "another account and another model and another budget")
    assert refused(predictor_of("memory://"), file, "another account")


def test_labels_of_another_model_are_refused(url, file):
    run(predictor_of(url), file)
    retrained = Members()
    with torch.no_grad():
        retrained.weight[3, 0, 0] = torch.nextafter(retrained.weight[3, 0, 0], torch.tensor(9.0))
    assert refused(predictor_of(url, members=retrained), file, "others': another model. ")


def test_labels_of_other_records_are_refused(url, file):
    """Of nearest neighbours the records are the model."""
    records = EmbeddedRecords(nn.Identity(), num_classes=3)
    records.add(queries(60, seed=3), torch.arange(60) % 3, ids=range(60))
    votes = NeighbourVotes(rate=1.0, k=9, sigma=20.0)
    labels = run(predictor_of(url, members=records, rule=votes), file).labels
    again = EmbeddedRecords(nn.Identity(), num_classes=3)
    again.load_state_dict(records.state_dict())
    assert torch.equal(run(predictor_of(url, members=again, rule=votes), file).labels, labels)
    again.remove([7])
    assert refused(predictor_of(url, members=again, rule=votes), file, "another model. ")


def test_labels_of_another_mechanism_or_of_other_inputs_are_refused(url, file):
    run(predictor_of(url), file)
    assert refused(predictor_of(url, rule=SoftMajority(eta=0.01)), file, "another mechanism. ")
    assert refused(predictor_of(url, rule=GNMax(sigma=9.0)), file, "another mechanism. ")
    assert refused(predictor_of(url), file, "another set of inputs. ", count=39)


def test_the_same_model_loaded_elsewhere_goes_on(url, file):
    first = predictor_of(url)
    labels = run(first, file).labels
    again = Members(seed=5)
    again.load_state_dict(copy.deepcopy(first.ensemble.state_dict()))
    assert torch.equal(run(predictor_of(url, members=again), file).labels, labels)
    assert first.status().queries == 40


def test_the_epsilon_is_that_of_the_labels_whatever_else_was_paid(url, file):
    predictor = predictor_of(url)
    predictor(queries(30, seed=8))
    found = run(predictor, file)
    cost = compose([replace(predictor.charge(), count=40)], 1e-5).epsilon
    assert found.epsilon == cost
    predictor_of(url, rule=GNMax(sigma=9.0))(queries(5, seed=9))  # another mechanism, later
    assert run(predictor_of(url), file).epsilon == cost
    assert predictor.status().queries == 75


def test_labels_that_the_account_has_not_paid_are_refused(tmp_path, url, file):
    """A backup of the ledger from before is put back: it is this account, but not this far."""
    predictor = predictor_of(url)
    predictor(queries(1))
    shutil.copy(tmp_path / "private.db", tmp_path / "before.db")
    run(predictor, file)
    restored = predictor_of(f"sqlite:///{tmp_path}/before.db")
    assert refused(restored, file, "more queries than this account has paid for")


def test_a_file_of_version_0_1_0_is_refused(url, file):
    predictor = predictor_of(url)
    made = ("records", RULE.identity(), digest(queries(40)))
    mark = hashlib.sha256(repr(made).encode()).hexdigest()
    torch.save({"labels": torch.zeros(40, dtype=torch.int64), "made": mark}, file)
    assert refused(predictor, file, "version 0.1.0 wrote it")


@pytest.mark.parametrize("content", [b"cut off", b"", [1, 2], {"version": 2}, {"version": 3}])
def test_a_file_of_something_else_is_refused(url, file, content):
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    assert refused(predictor_of(url), file, "something else")


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor(1), torch.rand(40), torch.zeros(40, 2).long(), torch.zeros(40).bool(),
        torch.full((40,), -2), torch.full((40,), 3), torch.zeros(40).long().to_sparse(), [0] * 40,
    ],
)  # fmt: skip
def test_what_are_no_labels_is_refused_though_the_marks_are_right(url, file, labels):
    predictor = predictor_of(url)
    run(predictor, file)
    torch.save({**torch.load(file), "labels": labels}, file)
    assert refused(predictor, file, "something else")


def test_a_budget_that_is_too_small_makes_no_account(url, file):
    """Its currency would be fixed for a mechanism that never answers."""
    predictor = predictor_of(url, rule=SoftMajority(eta=3.0))
    with pytest.raises(BudgetExhaustedError, match="Nothing was charged"):
        run(predictor, file)
    assert Ledger(url).find_records("records") is None
    assert not file.exists()


def test_the_file_tells_neither_the_account_nor_whether_two_models_are_one(tmp_path, url, file):
    predictor = predictor_of(url)
    run(predictor, file)
    run(predictor, tmp_path / "again.pt")
    one, other = (torch.load(path)["marks"] for path in (file, tmp_path / "again.pt"))
    assert one["account"] != other["account"]
    assert one["model"] != other["model"]  # though it is the same
    assert one["mechanism"] == other["mechanism"]
    account = Ledger(url).find_records("records")
    assert account.encode() not in file.read_bytes()
    plain = digest(predictor.ensemble.weight.detach())
    assert plain not in file.read_bytes()
    assert plain.hex().encode() not in file.read_bytes()
