"""Records come, go, move and are stored; nothing public tells how many there are."""

import copy
import io
import logging
import pickle
import traceback

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction import (
    EmbeddedRecords,
    GNMax,
    NeighbourVotes,
    NoisyMean,
    PrivacyBudget,
    PrivatePredictor,
    SoftMajority,
    StableERM,
)
from torch_holdout.prediction.stable.problem import StableProblem

from support.builders.members import Members
from support.builders.nearest import BUDGET, VOTES, clusters, make_predictor, make_records


def listed(records, count=70, seed=9):
    return records.nearest(clusters(6, seed)[0], count)


def emptied():
    return EmbeddedRecords(nn.Identity(), num_classes=3)


def test_records_in_parts_are_the_records_together():
    x, y = clusters(60)
    whole, parts = emptied(), emptied()
    parts._secret = whole._secret
    whole.add(x, y)
    for rows in torch.randperm(60, generator=torch.Generator().manual_seed(1)).split(7):
        parts.add(x[rows], y[rows])
    assert torch.equal(listed(whole), listed(parts))


@pytest.mark.parametrize("kind", ["list", "array", "pairs of arrays", "dataset", "loader"])
def test_records_come_in_any_form(kind):
    x, y = clusters(20)
    pairs = TensorDataset(x, y)
    whole, other = emptied(), emptied()
    other._secret = whole._secret
    whole.add(x, y, ids=range(20))
    if kind == "list":
        other.add(x, y.tolist(), ids=torch.arange(20))
    elif kind == "array":
        other.add(x.numpy(), y.numpy(), ids=np.arange(20))
    elif kind == "pairs of arrays":
        other.add(list(zip(x.numpy(), y.numpy(), strict=True)), ids=range(20))
    else:
        other.add(pairs if kind == "dataset" else DataLoader(pairs, 6), ids=list(range(20)))
    assert torch.equal(listed(whole), listed(other))
    other.remove([3])
    whole.remove(torch.tensor([3]))
    assert torch.equal(listed(whole), listed(other))


def test_removed_records_are_as_never_added():
    x, y = clusters(30)
    never, gone = emptied(), emptied()
    gone._secret = never._secret
    never.add(x[10:], y[10:])
    gone.add(x, y, ids=range(30))
    gone.remove(range(10))
    assert torch.equal(listed(never), listed(gone))
    assert all(torch.equal(a, b) for a, b in zip(_tensors(never), _tensors(gone), strict=True))
    gone.remove(range(10, 30))
    assert bool((listed(gone) == -1).all())
    gone.add(x[:2], y[:2], ids=[0, 1])  # its name is free again


def _tensors(records):
    found = records._placed.found
    return found.codes, found.weights, found.labels


def test_users_leave_with_all_their_records():
    records = make_records(unit="user")
    x, y = clusters(60)
    other = EmbeddedRecords(nn.Identity(), num_classes=3, unit="user")
    other._secret = records._secret
    kept = [row for row in range(60) if row // 3 not in (0, 5)]
    other.add(x[kept], y[kept], users=[row // 3 for row in kept])
    records.remove_users([0, 5])
    assert torch.equal(listed(records), listed(other))
    assert bool((listed(records)[:, 18:] == -1).all())  # 18 users are left


def test_users_may_leave_where_each_record_is_the_unit():
    records = EmbeddedRecords(nn.Identity(), num_classes=3)
    records.add(*clusters(4), users=["ann", "bob", "ann", "cy"])
    records.remove_users(["ann"])
    assert (listed(records, 4) >= 0).sum(1).tolist() == [2] * 6


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda r, x, y: r.add(x, y, ids=[1, 1, 2]), "at least one is not new"),
        (lambda r, x, y: r.add(x, y, ids=[100, 101, 59]), "at least one is not new"),
        (lambda r, x, y: r.add(x, y, ids=[100, 101]), "one for each record"),
        (lambda r, x, y: r.add(x, y, ids=[100, 101, 1.5]), "whole numbers or text"),
        (lambda r, x, y: r.add(x, y, ids="abc"), "whole numbers or text"),
        (lambda r, x, y: r.add(x, y, users=[True, 1, 2]), "whole numbers or text"),
        (lambda r, x, y: r.add(x, torch.tensor([0, 3, 1])), "from 0 to 2, but at least one"),
        (lambda r, x, y: r.add(x, torch.tensor([0, -1, 1])), "from 0 to 2, but at least one"),
        (lambda r, x, y: r.add(x, y.float()), "labels to be whole numbers"),
        (lambda r, x, y: r.add(x, y[:2]), "one label"),
        (lambda r, x, y: r.add(x, y[:, None]), "one whole number for each"),
        (lambda r, x, y: r.add(x), "with `labels`"),
        (lambda r, x, y: r.add(TensorDataset(x, y), y), "`labels` with a tensor"),
        (lambda r, x, y: r.add(TensorDataset(x)), "pairs of inputs and a label"),
        (lambda r, x, y: r.add([("some text", 1)]), "numbers, but got a str. Turn text"),
        (lambda r, x, y: r.add(np.array(["a", "b"]), [0, 1]), "numbers, but got a ndarray"),
        (lambda r, x, y: r.add(["a", "b"], [0, 1]), "with a tensor or an array of records"),
        (lambda r, x, y: r.add([(x[0], 1), (x[0, :2], 1)]), "shape and number type of the first"),
        (lambda r, x, y: r.add([]), "empty dataset"),
        (lambda r, x, y: r.remove([1, 999]), "at least one is not there"),
        (lambda r, x, y: r.remove(["1"]), "at least one is not there"),
        (lambda r, x, y: r.remove_users(["ann"]), "at least one is not there"),
    ],
)
def test_what_is_wrong_changes_nothing(act, words):
    records = make_records()
    before, revision = listed(records), records.revision
    x, y = clusters(3, seed=4)
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        act(records, x, y)
    assert "Nothing was" in str(caught.value)
    assert torch.equal(listed(records), before)
    assert records.revision is revision


def test_users_as_units_must_be_named():
    records = EmbeddedRecords(nn.Identity(), num_classes=3, unit="user")
    with pytest.raises(InvalidArgumentError, match="whose each record is"):
        records.add(*clusters(3))


def test_nothing_public_tells_how_many_there_are(caplog):
    """Everything that can be printed or counted is the same for 1 and for 577 records."""

    def said(count):
        records = make_records(count)
        predictor = make_predictor(records=records, name="visits", ledger="memory://")
        caplog.clear()
        with caplog.at_level(logging.DEBUG):
            predictor(clusters(2)[0])
        # SQLAlchemy's pool tells addresses, and what else is collected at that moment.
        logged = [r.getMessage() for r in caplog.records if not r.name.startswith("sqlalchemy")]
        status = str(predictor.status()).replace(predictor.status().ledger, "")
        sizes = [tuple(t.shape) for t in (*predictor.parameters(), *predictor.buffers())]
        return [
            repr(records), str(records), records.extra_repr(), repr(records._placed),
            repr(vars(records)["_placed"].found), records.identity(), records.source,
            str(predictor.plan()), status, sizes, logged,
        ]  # fmt: skip

    assert said(1) == said(577)
    with pytest.raises(TypeError):
        len(make_records())


def test_an_answer_never_depends_on_there_being_records_in_its_shape_or_error():
    for count in (1, 2, 60):
        predictor = make_predictor(records=make_records(count))
        assert predictor(clusters(4)[0]).shape == (4,)
    records = emptied()
    assert make_predictor(records=records)(clusters(4)[0]).shape == (4,)
    records.add(torch.zeros(0, 4), [])  # the shape, which is public, and no record
    with pytest.raises(InvalidArgumentError, match="d = 4"):
        make_predictor(records=records)(torch.zeros(2, 5))


def copies(records):
    yield copy.deepcopy(records)
    yield pickle.loads(pickle.dumps(records))
    loaded = EmbeddedRecords(copy.deepcopy(records.embed), num_classes=3, unit=records.unit)
    file = io.BytesIO()
    torch.save(records.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    yield loaded


@pytest.mark.parametrize("unit", ["record", "user"])
def test_copies_answer_alike_and_go_their_own_way(unit):
    records = make_records(unit=unit, embed=nn.Linear(4, 3))
    before = listed(records)
    for other in copies(records):
        assert torch.equal(listed(other), before)
        assert other.revision is not records.revision
        other.remove([0, 1])
        other.add(torch.zeros(1, 4), [2], ids=["new"], users=["new"])
        assert torch.equal(listed(records), before)


def test_a_state_of_other_records_or_another_embedding_is_refused():
    state = make_records(embed=nn.Linear(4, 3)).state_dict()
    with pytest.raises(HoldoutMismatchError, match="records of"):
        EmbeddedRecords(nn.Linear(4, 3), num_classes=4).load_state_dict(state)
    other = EmbeddedRecords(nn.Linear(4, 3), num_classes=3)
    other.load_state_dict({key: value for key, value in state.items() if "embed" not in key},
                          strict=False)  # fmt: skip
    with pytest.raises(HoldoutMismatchError, match="embedding that the records were added with"):
        make_predictor(records=other)(clusters(2)[0])


CHANGED = {
    "other labels": lambda state: state.update(labels=state["labels"] + 3),
    "labels below 0": lambda state: state.update(labels=-state["labels"] - 1),
    "rounded": lambda state: state.update(codes=1000 * state["codes"].float()),
    "beyond the largest": lambda state: state["codes"].fill_(-128),
    "fewer records": lambda state: state.update(codes=state["codes"][1:]),
    "fewer names": lambda state: state.update(ids=state["ids"][1:]),
    "other dimensions": lambda state: state.update(codes=state["codes"][:, 1:]),
    "nobody's": lambda state: state["users"].__setitem__(0, None),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_state_that_was_edited_is_refused_before_a_charge(change):
    """Labels that are no classes raised after the charge; larger codes had no exact order."""
    found = EmbeddedRecords(nn.Identity(), num_classes=3, unit="user")
    found.add(torch.eye(4), [0, 1, 2, 1], users=["a", "a", "b", "c"])
    before, kept = found.nearest(torch.eye(4), 3), copy.deepcopy(found.state_dict())
    CHANGED[change](kept["_extra_state"])
    with pytest.raises(HoldoutMismatchError, match="converted, edited or left out"):
        found.load_state_dict(kept)
    assert torch.equal(found.nearest(torch.eye(4), 3), before)
    found.load_state_dict(found.state_dict())
    assert torch.equal(found.nearest(torch.eye(4), 3), before)


def test_number_types_of_the_store_stay_when_the_embedding_is_moved():
    records = make_records()
    before = listed(records)
    records.to("cpu").half()
    assert torch.equal(listed(records), before)


@pytest.mark.parametrize(
    "mechanism",
    [
        SoftMajority(eta=0.1),
        GNMax(sigma=4.0),
        NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5),
        StableERM(problem=StableProblem(size=9, regularisation=0.1, loss="logistic"), epsilon=0.1),
    ],
)
def test_other_mechanisms_are_refused(mechanism):
    with pytest.raises(
        (InvalidArgumentError, HoldoutMismatchError), match=r"EmbeddedRecords|Neigh"
    ):
        make_predictor(mechanism)


def test_other_models_are_refused_by_the_mechanism():
    with pytest.raises(InvalidArgumentError, match="Expected EmbeddedRecords"):
        PrivatePredictor(Members(), VOTES, budget=BUDGET, ledger="memory://", name="records")


def test_raw_outputs_are_not_to_be_had():
    records = make_records()
    for act in (records, records.output_chunks):
        with pytest.raises(InvalidArgumentError, match="through PrivatePredictor"):
            act(torch.zeros(1, 4))


def test_pure_budgets_are_refused():
    with pytest.raises(InvalidArgumentError, match="Gaussian noise needs a budget with a delta"):
        make_predictor(budget=PrivacyBudget(epsilon=1.0))(clusters(1)[0])


def test_names_of_one_kind_are_not_those_of_another():
    records = EmbeddedRecords(nn.Identity(), num_classes=3)
    records.add(*clusters(2), ids=[1, "1"])
    records.remove(["1"])
    with pytest.raises(InvalidArgumentError):
        records.remove(["1"])
    records.remove([1])


@pytest.mark.parametrize(("name", "value"), [("unit", "record"), ("num_outputs", 2)])
def test_the_unit_and_the_classes_stay(name, value):
    """The unit: a user with many records moved many votes. Classes: an error told of a label."""
    records = make_records(unit="user")
    predictor = make_predictor(records=records)
    with pytest.raises(InvalidArgumentError, match=f"new EmbeddedRecords for another {name}"):
        setattr(records, name, value)
    for one in (records, *(c for c in copies(records))):
        assert (one.unit, one.num_outputs) == ("user", 3)
    assert predictor.ensemble.neighbours == predictor.records.neighbours


def test_rules_of_the_arguments():
    for wrong in ({"num_classes": 1}, {"num_classes": 2, "unit": "visit"}):
        with pytest.raises(InvalidArgumentError):
            EmbeddedRecords(nn.Identity(), **wrong)
    with pytest.raises(InvalidArgumentError, match="function"):
        EmbeddedRecords(torch.zeros(3), num_classes=2)
    assert NeighbourVotes(rate=1, k=5, sigma=3).reach == 5


@pytest.mark.parametrize("remove", ["remove", "remove_users"])
def test_an_error_of_removing_carries_no_names_of_others(remove):
    records = EmbeddedRecords(nn.Identity(), num_classes=2)
    records.add(torch.eye(2), [0, 1], ids=["secret", "other"], users=["secret", "other"])
    with pytest.raises(InvalidArgumentError, match="is not there") as caught:
        getattr(records, remove)(["stranger"])
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]
    assert frames
    assert not any("secret" in repr(frame.f_locals) for frame in frames)
