"""Couplings that the training loop alone does not show are found when everything is made anew."""

import random
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_holdout.errors import IsolationError
from torch_holdout.prediction import verify_isolation
from torch_holdout.prediction.ensemble.batches import PartSampler
from torch_holdout.prediction.lightning import PartitionedDataModule, PartitionedEnsemble

from support.builders.ensembles import linear
from support.builders.rebuilt import (
    BY_ID,
    BY_INDEX,
    BY_USER,
    RELATIONS,
    Wrapped,
    builder,
    features,
    labels,
    rows,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


# ---- class weights and normalisation from all records


def weighted(records):
    return partial(functional.cross_entropy, weight=1 / (1 + labels(records).bincount(minlength=3)))


class Centred(nn.Module):
    """A model with the mean of all records in it."""

    def __init__(self, mean):
        super().__init__()
        self.head = linear()
        self.mean = mean

    def forward(self, x):
        return self.head(x - self.mean)


class CentredInEval(Centred):
    """Its weights tell nothing, its answers do."""

    def forward(self, x):
        return self.head(x if self.training else x - self.mean)


def of_mean(kind):
    return lambda records: partial(kind, features(records).mean(dim=0))


def started_at_the_mean(records):
    """First weights that were fitted to all records."""

    def model():
        head = linear()
        head.bias.data += features(records).mean()
        return head

    return model


def centred_in_init(records):
    mean = features(records).mean(dim=0)
    return Wrapped(records, lambda all_records, index, x: x - mean)


def centred_when_read(records):
    return Wrapped(records, lambda all_records, index, x: x - features(all_records).mean(dim=0))


def encoded(records):
    """Inputs that have the mean feature of their label among them: a target encoding."""
    means = torch.stack([features(records)[labels(records) == k].mean() for k in range(3)])
    return lambda record: (record[1] + means[record[2]], record[2])


# ---- augmentation and mixup


def drawing(draw):
    """Draw twice for some records, once for others, from a global generator."""

    def change(records, index, x):
        return x + 0.1 * sum(draw() for _ in range(1 + bool(x[0] > 0)))

    return lambda records: Wrapped(records, change)


def mixed(records):
    def change(records, index, x):
        return 0.5 * x + 0.5 * records[(7 * index + 3) % len(records)][1]

    return Wrapped(records, change)


def mixed_at_random(records):
    def change(records, index, x):
        return 0.5 * x + 0.5 * records[int(torch.randint(len(records), ()))][1]

    return Wrapped(records, change)


def seeded_by_index(records):
    def change(records, index, x):
        return x + torch.randn(6, generator=torch.Generator().manual_seed(index))

    return Wrapped(records, change)


# ---- callbacks


class Stopping(pl.Callback):
    """Stop when the loss is high."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        trainer.should_stop = bool(outputs["loss"] > 100)


class StoppingAfterAnEpoch(pl.Callback):
    def __init__(self):
        self.last = 0.0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.last = float(outputs["loss"])

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = self.last > 100


class Slowing(pl.Callback):
    """Let the learning rate follow the loss."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        for group in trainer.optimizers[0].param_groups:
            group["lr"] *= float(1 / (1 + outputs["loss"].detach()))


class Averaging(pl.Callback):
    """Pull every member to the mean of all."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        with torch.no_grad():
            for weight in module.members.parameters():
                weight.lerp_(weight.mean(dim=0, keepdim=True).expand_as(weight), 0.1)


def called(kind):
    return lambda records: {"callbacks": [kind()]}


MADE_BEFORE = {
    "class weights in the loss": {"loss": weighted},
    "normalisation in the model": {"model": of_mean(Centred)},
    "normalisation in the model at inference": {"model": of_mean(CentredInEval)},
    "first weights": {"model": started_at_the_mean},
    "normalisation in __init__": {"train_set": centred_in_init},
    "normalisation in __getitem__": {"train_set": centred_when_read},
    "target encoding in as_pair": {"as_pair": encoded},
    "draws of torch by record": {"train_set": drawing(lambda: torch.rand(()))},
    "draws of numpy by record": {"train_set": drawing(np.random.rand)},
    "draws of Python by record": {"train_set": drawing(random.random)},
    "mixup": {"train_set": mixed},
    "mixup at random": {"train_set": mixed_at_random},
    "a callback that stops": {"options": called(Stopping)},
    "a callback that stops after an epoch": {"options": called(StoppingAfterAnEpoch)},
    "a callback that changes the rate": {"options": called(Slowing)},
}


@pytest.mark.parametrize("relation", ["index", "id", "user replaced"])
@pytest.mark.parametrize("coupling", MADE_BEFORE)
def test_a_coupling_is_found(coupling, relation):
    build = builder(RELATIONS[relation], **MADE_BEFORE[coupling])
    with pytest.raises(IsolationError, match="epsilon does not hold"):
        verify_isolation(build, rows())


@pytest.mark.parametrize("relation", ["id replaced", "user"])
@pytest.mark.parametrize("coupling", ["class weights in the loss", "mixup"])
def test_a_coupling_is_found_for_the_other_relations_too(coupling, relation):
    test_a_coupling_is_found(coupling, relation)


@pytest.mark.parametrize("coupling", MADE_BEFORE)
def test_the_training_loop_alone_does_not_show_it(coupling):
    ensemble, datamodule, options = builder(**MADE_BEFORE[coupling])(rows())
    if "rate" in coupling:  # it does, to those who pass the callback
        del options["callbacks"]
    del options["max_epochs"]
    assert ensemble.verify_isolation(datamodule, index=5, trainer_options=options).steps > 0


# ---- the number of records


def size_in(name, number):
    return lambda records: {name: number(len(records))}


def wide(records):
    """A vocabulary, as it were: a width that is the number of different values."""
    width = len(set(features(records)[:, 0].tolist()))
    return lambda: nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))


def one_cycle(records):
    return {"scheduler": partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=len(records))}


def shuffling(records):
    torch.randperm(len(records))
    return functional.cross_entropy


BY_NUMBER = {
    "index": ({"train_set": seeded_by_index}, "4 of 4 members changed"),
    "steps in an epoch": (
        {"data_options": size_in("steps_per_epoch", lambda n: n // 16)},
        "`steps_per_epoch` of the data module, .*batches in an epoch",
    ),
    "epochs": ({"options": size_in("max_epochs", lambda n: n)}, "Trainer option `max_epochs`"),
    "steps": ({"options": size_in("max_steps", lambda n: 2 * n)}, "Trainer option `max_steps`"),
    "accumulation": (
        {"options": size_in("accumulate_grad_batches", lambda n: n - 45)},
        "batches in a step, .*Trainer option `accumulate_grad_batches`",
    ),
    "weight decay": (
        {"optimizer": lambda records: partial(torch.optim.SGD, lr=0.1, weight_decay=len(records))},
        "`weight_decay` of the optimizer",
    ),
    "scheduler": ({"ensemble_options": one_cycle}, "`lr` of the optimizer's group 0"),
    "clipping": ({"ensemble_options": size_in("clip_norm", lambda n: 1e9 * n)}, "`clip_norm`"),
    "shapes": ({"model": wide}, "the shapes of weights"),
    "draws": ({"loss": shuffling}, "a global random generator"),
}


@pytest.mark.parametrize("coupling", BY_NUMBER)
def test_a_removed_record_shows_what_depends_on_their_number(coupling):
    changes, words = BY_NUMBER[coupling]
    with pytest.raises(IsolationError, match=words):
        verify_isolation(builder(BY_ID, **changes), rows(), index=20)
    ensemble, datamodule, _ = builder(BY_ID, **changes)(rows())
    assert ensemble.verify_isolation(datamodule, index=20).steps > 0


@pytest.mark.parametrize("coupling", ["index", "steps in an epoch", "draws"])
def test_where_their_number_is_public_it_may_decide(coupling):
    build = builder(BY_INDEX, **BY_NUMBER[coupling][0])
    assert verify_isolation(build, rows(), index=20).neighbours == 3


# ---- what the training loop shows too


class Pooled:
    """A loss that is scaled by a running mean over all members."""

    def __init__(self):
        self.mean = torch.zeros(())

    def __call__(self, output, target):
        loss = functional.cross_entropy(output, target)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss / (1 + self.mean)


class EveryoneResamples(PartitionedDataModule):
    def sampler(self):
        everything = torch.arange(len(self.train_set))
        return PartSampler(
            [everything] * 4, first=0, batch_size=4, steps=self.steps_per_epoch, seed=0
        )


class InEveryPart(PartitionedDataModule):
    """It says itself that each record is in all parts."""

    def assignment(self):
        return [torch.arange(len(self.train_set))] * 4


class BufferedLoss(nn.Module):
    """Class weights in a buffer, which are not used."""

    def __init__(self, records):
        super().__init__()
        self.register_buffer("counts", labels(records).bincount(minlength=3))

    def forward(self, output, target):
        return functional.cross_entropy(output, target)


IN_THE_LOOP = {
    "a loss with a state": {
        "loss": lambda records: Pooled(),
        "ensemble_options": lambda records: {"backend": "loop"},
    },
    "members averaged": {"options": called(Averaging)},
    "a sampler of all records": {"kinds": (PartitionedEnsemble, EveryoneResamples)},
    "parts that overlap": {"kinds": (PartitionedEnsemble, InEveryPart)},
    "draws in a worker": {
        "train_set": drawing(lambda: torch.rand(())),
        "data_options": lambda records: {"num_workers": 1},
    },
}


@pytest.mark.parametrize("coupling", IN_THE_LOOP)
@pytest.mark.parametrize("parts", [BY_INDEX, BY_USER], ids=["index", "user"])
def test_a_coupling_of_the_training_loop_is_found(coupling, parts):
    with pytest.raises(IsolationError, match=r"\d of 4 members changed"):
        verify_isolation(builder(parts, **IN_THE_LOOP[coupling]), rows())


def test_a_shared_tensor_is_found_though_it_teaches_nothing():
    with pytest.raises(IsolationError, match=r"1 of 4 members changed .*`loss.counts`, which all"):
        verify_isolation(builder(BY_ID, loss=BufferedLoss), rows(), index=5)
