"""Honest ensembles pass the test in which everything is made anew; its errors say what to do."""

import os
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Subset
from torch_holdout import prediction as tp
from torch_holdout.errors import InvalidArgumentError, IsolationError
from torch_holdout.prediction import pytorch_lightning as other_package
from torch_holdout.prediction import verify_isolation

from support.builders.ensembles import ADAM, batch_norm, data, dropping, ensemble, group_norm
from support.builders.rebuilt import (
    BY_ID,
    BY_ID_REPLACED,
    BY_INDEX,
    BY_USER,
    RELATIONS,
    Wrapped,
    builder,
    features,
    labels,
    pair,
    rows,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


def public_weights(records):
    return partial(functional.cross_entropy, weight=torch.tensor([0.5, 1.0, 2.0]))


def seeded_by_id(records):
    """Augmentation that depends on the record alone."""

    class SeededById(Wrapped):
        def __getitem__(self, index):
            number, x, label = self.records[index]
            noise = torch.randn(6, generator=torch.Generator().manual_seed(int(number)))
            return number, x + noise, label

    return SeededById(records, None)


def centred_by_part(parts):
    """Each record minus the mean of its own part."""

    def train_set(records):
        means = {}
        for part in parts.assign(records):
            mean = features(Subset(records, part.tolist())).mean(dim=0) if len(part) else 0.0
            means.update(dict.fromkeys(part.tolist(), mean))
        return Wrapped(records, lambda records, index, x: x - means[index])

    return train_set


HONEST = {
    "batch norm": {"model": lambda records: batch_norm},
    "group norm": {"model": lambda records: group_norm},
    "dropout": {"model": lambda records: dropping, "optimizer": lambda records: ADAM},
    "public class weights": {"loss": public_weights},
    "augmentation by id": {"train_set": seeded_by_id},
    "loop": {"ensemble_options": lambda records: {"backend": "loop", "clip_norm": 0.1}},
    "chunks": {"ensemble_options": lambda records: {"chunk_size": 3}},
    "rates": {
        "ensemble_options": lambda records: {
            "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=2)
        },
        "options": lambda records: {"accumulate_grad_batches": 2, "precision": "bf16-mixed"},
    },
}


@pytest.mark.parametrize("parts", RELATIONS.values(), ids=RELATIONS)
def test_an_honest_ensemble_passes(parts):
    found = verify_isolation(builder(parts), rows())
    assert found.neighbours == 5  # three records and two outliers
    assert 0 <= found.member < 4


@pytest.mark.parametrize("relation", ["index", "id", "user replaced"])
@pytest.mark.parametrize("honest", HONEST)
def test_honest_twins_pass(honest, relation):
    build = builder(RELATIONS[relation], **HONEST[honest])
    assert verify_isolation(build, rows(), index=5).neighbours == 3


@pytest.mark.parametrize("parts", RELATIONS.values(), ids=RELATIONS)
def test_a_normalisation_by_part_passes(parts):
    verify_isolation(builder(parts, train_set=centred_by_part(parts)), rows(), index=5)


DRAWS = {
    "torch": lambda: torch.randn(6),
    "numpy": lambda: float(np.random.rand()),
    "Python": random.random,
}


def fixed_draws(records):
    """One draw for each record that is read, whatever it is."""
    return Wrapped(records, lambda records, index, x: x + torch.randn(6))


@pytest.mark.parametrize("workers", [0, 1])
def test_augmentation_with_equally_many_draws_passes(workers):
    options = {"train_set": fixed_draws, "data_options": lambda records: {"num_workers": workers}}
    verify_isolation(builder(BY_INDEX, **options), rows(), index=5)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("parts", RELATIONS.values(), ids=RELATIONS)
def test_augmentation_with_equally_many_draws_passes_for_all_relations(parts, draw):
    """Also where each record is read for its key, and one record less is one reading less."""

    def train_set(records):
        return Wrapped(records, lambda records, index, x: x + DRAWS[draw]())

    verify_isolation(builder(parts, train_set=train_set), rows(), index=5)


@pytest.mark.parametrize("parts", [BY_INDEX, BY_USER], ids=["index", "user"])
def test_in_the_other_package(parts):
    kinds = (other_package.PartitionedEnsemble, other_package.PartitionedDataModule)
    verify_isolation(builder(parts, kinds=kinds), rows(), index=5)

    def weighted(records):
        weight = labels(records).bincount(minlength=3).float()
        return partial(functional.cross_entropy, weight=weight)

    with pytest.raises(IsolationError, match="4 of 4 members changed"):
        verify_isolation(builder(parts, kinds=kinds, loss=weighted), rows(), index=5)


class Read:
    """A dataset of the user's own kind."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


KINDS = {"list": list, "tuple": tuple, "dataset": Read, "subset": lambda r: Subset(r, range(40))}


@pytest.mark.parametrize("parts", [BY_ID, BY_ID_REPLACED], ids=["removed", "replaced"])
@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_kind(kind, parts):
    verify_isolation(builder(parts), KINDS[kind](rows()), index=5)


@pytest.mark.parametrize("kind", [torch.Tensor.clone, torch.Tensor.numpy])
def test_records_as_the_rows_of_a_table(kind):
    def as_pair(records):
        return lambda row: (torch.as_tensor(row[1:7]), int(row[7]))

    numbers, x, y = rows().tensors
    table = kind(torch.cat([numbers[:, None], x, y[:, None]], dim=1).float())
    found = verify_isolation(builder(BY_ID, as_pair=as_pair), table, index=[5, 6])
    assert found.neighbours >= 2


def test_content_as_key_and_a_replacement_of_two_members():
    parts = tp.Partition(num_parts=4, key="content", seed=0, relation="replace-one")
    replacement = (torch.tensor(7), torch.full((6,), 1e20), torch.tensor(1))
    verify_isolation(builder(parts), rows(), index=2, replacement=replacement)
    removed = tp.Partition(num_parts=4, key="content", seed=0)
    found = verify_isolation(builder(removed), rows(), index=2, replacement=replacement)
    assert found.neighbours == 2  # without it, and the replacement in its place


def test_a_user_is_removed_with_all_records():
    seen = []

    def train_set(records):
        seen.append([int(record[0]) for record in records])
        return records

    verify_isolation(builder(BY_USER, train_set=train_set), rows(), index=6)
    assert [k for k in range(48) if k not in (4, 5, 6, 7)] in seen
    assert min(map(len, seen)) == 44


def test_the_fit_ends_after_the_first_epoch_or_where_the_options_say():
    assert verify_isolation(builder(), rows(), index=5).steps == 6
    short = builder(options=lambda records: {"max_steps": 4})
    assert verify_isolation(short, rows()).steps == 4
    assert verify_isolation(short, rows(), steps=5).steps == 5
    limited = builder(options=lambda records: {"limit_train_batches": 2})
    assert verify_isolation(limited, rows()).steps == 5
    with pytest.raises(IsolationError, match="was not within the fit"):
        verify_isolation(builder(options=lambda r: {"max_steps": 1}), rows(), index=[*range(48)])


def test_generators_and_records_are_left_alone():
    records = rows()
    before = [column.clone() for column in records.tensors]
    torch.manual_seed(3)
    first = torch.rand(3)
    torch.manual_seed(3)
    verify_isolation(builder(), records, index=5)
    assert torch.equal(torch.rand(3), first)
    assert all(torch.equal(one, other) for one, other in zip(before, records.tensors, strict=True))


def test_the_answers_can_be_asked_for():
    asked = []

    class Watched(nn.Linear):
        def forward(self, x):
            if not self.training:
                asked.append(len(x))
            return super().forward(x)

    build = builder(model=lambda records: partial(Watched, 6, 3))
    verify_isolation(build, rows(), index=5, inputs=torch.zeros(11, 6))
    assert 11 in asked
    asked.clear()
    verify_isolation(build, rows(), index=5)
    assert 16 in asked


# ---- errors


def test_chance_of_its_own_is_told_from_a_coupling():
    def by_chance(records):
        noise = int.from_bytes(os.urandom(2), "little") / 2**16
        return lambda output, target: (1 + noise) * functional.cross_entropy(output, target)

    with pytest.raises(IsolationError, match=r"same training twice .* 4 of 4 members differ"):
        verify_isolation(builder(loss=by_chance), rows(), index=5)


def test_a_state_that_outlives_a_build_is_told_from_a_coupling():
    kept = []

    def longer(records):
        kept.append(1)
        return {"max_epochs": 4 + len(kept)}

    with pytest.raises(IsolationError, match=r"same training twice .* or the numbers of the fit"):
        verify_isolation(builder(options=longer), rows(), index=5)


def test_a_build_that_makes_nothing_anew_is_refused():
    made = ensemble(parts=BY_INDEX), data(rows(), BY_INDEX, as_pair=pair)
    with pytest.raises(InvalidArgumentError, match="a new ensemble and a new data module"):
        verify_isolation(lambda records: made, rows())


def test_a_build_that_uses_other_records_is_refused():
    with pytest.raises(IsolationError, match="none of 4 did"):
        verify_isolation(builder(train_set=lambda records: rows()), rows())
    with pytest.raises(IsolationError, match="make a data module of all the records"):
        verify_isolation(builder(BY_ID, train_set=lambda records: rows()), rows())
    with pytest.raises(InvalidArgumentError, match="has another number of them"):
        verify_isolation(builder(train_set=lambda records: list(records)[1:]), rows())


def test_what_a_neighbour_raises_is_not_quoted():
    def fussy(records):
        if len(records) < 48:
            raise ValueError("secret 1234")
        return records

    with pytest.raises(
        IsolationError, match="after removing record 5, but it raised ValueError"
    ) as found:
        verify_isolation(builder(BY_ID, train_set=fussy), rows(), index=5)
    assert "1234" not in str(found.value)
    assert found.value.__context__ is None


def test_an_outlier_that_the_code_does_not_take_is_left_out():
    def fussy(records):
        if features(records).abs().max() > 100:
            raise ValueError
        return records

    assert verify_isolation(builder(train_set=fussy), rows(), index=5).neighbours == 1


def test_a_record_that_teaches_nothing_is_said_to():
    with pytest.raises(IsolationError, match="none of 4 did"):
        verify_isolation(builder(), rows(), index=5, replacement=rows()[5])


WRONG = {
    "no function": ({"build": 3}, "`build` to be a function"),
    "no length": ({"records": iter([1])}, "`records` to have a length"),
    "one record": ({"records": [1]}, "at least two"),
    "no tuple": ({"build": lambda records: None}, "but got a NoneType"),
    "no ensemble": ({"build": lambda records: (1, 2)}, "but got a int"),
    "no data module": ({"build": lambda records: (ensemble(), 2)}, "but got a int"),
    "no options": ({"build": lambda records: (ensemble(), data(), 2)}, "but got a int"),
    "no such index": ({"index": 48}, "`index` to be a whole number from 0 to 47"),
    "no index": ({"index": []}, "at least one `index`"),
    "no steps": ({"steps": 0}, "`steps` to be a whole number"),
    "a fit of none": ({"build": builder(options=lambda records: {"max_steps": 0})}, "of none"),
    "another record": ({"replacement": (1, 2)}, "`replacement` like the records"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused(wrong):
    changes, words = WRONG[wrong]
    with pytest.raises(InvalidArgumentError, match=words):
        verify_isolation(**{"build": builder(), "records": rows(), **changes})


def test_several_processes_are_refused():
    options = {"devices": 2, "strategy": "ddp_spawn"}
    with pytest.raises(InvalidArgumentError, match="one process, but they ask for 2"):
        verify_isolation(builder(options=lambda records: options), rows())


def test_one_user_only_cannot_be_replaced():
    parts = tp.Partition(num_parts=2, key=lambda r: 1, seed=0, unit="user", relation="replace-one")
    with pytest.raises(InvalidArgumentError, match="all are of one"):
        verify_isolation(builder(parts), rows())
