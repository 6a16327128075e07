"""Ordinary modules: batches of every kind, and steps of every signature."""

from collections import UserDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from training.careless.cases import BATCH, SIZE, Case, classes, noise, plain, register

CASES = []
ordinary = register(CASES)


class Pairs(Dataset):
    """Examples as pairs, for collate functions."""

    def __init__(self, seed):
        self.x = noise(SIZE, 4, seed=seed)
        self.y = classes(self.x)

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def collated(module, collate, **options):
    """A case whose batches are what ``collate`` makes of stacked inputs and labels."""

    def batch(pairs):
        return collate(torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs]))

    train, val = (DataLoader(Pairs(seed), batch_size=BATCH, collate_fn=batch) for seed in (1, 2))
    return Case(module=module, train=train, val=val, **options)


def unpacking(pl, unpack):
    """A module that gets inputs and labels from the batch by ``unpack``."""

    class Net(plain(pl)):
        def losses(self, batch):
            return super().losses(unpack(batch))

    return Net()


@ordinary
def dictionary_batch(pl):
    module = unpacking(pl, lambda batch: (batch["x"], batch["meta"]["y"]))
    return collated(module, lambda x, y: {"x": x, "meta": {"y": y, "name": "a batch"}})


@ordinary
def keyword_batch(pl):
    class Net(plain(pl)):
        def forward(self, x, y=None):
            return functional.cross_entropy(self.net(x), y, reduction="none")

        def losses(self, batch):
            return self(**batch)

    return collated(Net(), lambda x, y: {"x": x, "y": y})


@dataclass
class DataBatch:
    x: torch.Tensor
    y: torch.Tensor
    source: str = "file"


@ordinary
def dataclass_batch(pl):
    return collated(unpacking(pl, lambda batch: (batch.x, batch.y)), DataBatch)


class TupleBatch(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@ordinary
def named_tuple_batch(pl):
    return collated(unpacking(pl, lambda batch: (batch.x, batch.y)), TupleBatch)


class Encoding(UserDict):
    """As the BatchEncoding of transformers: a UserDict with attributes and ``to``."""

    def __getattr__(self, name):
        if name == "data":
            raise AttributeError(name)
        try:
            return self.data[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def to(self, device, **options):
        self.data = {key: value.to(device, **options) for key, value in self.data.items()}
        return self


@ordinary
def encoding_batch(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            inputs = {key: value for key, value in batch.items() if key != "labels"}
            return super().losses((inputs["input_ids"] * inputs["attention_mask"], batch.labels))

    return collated(
        Net(),
        lambda x, y: Encoding({"input_ids": x, "attention_mask": torch.ones_like(x), "labels": y}),
    )


@ordinary
def transformers_model(pl):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, num_labels=3,
    )  # fmt: skip

    class Net(plain(pl)):
        def make(self):
            self.net = transformers.BertForSequenceClassification(config)

        def losses(self, batch):
            labels = batch.pop("labels")
            return functional.cross_entropy(self.net(**batch).logits, labels, reduction="none")

    return collated(
        Net(), lambda x, y: {"input_ids": (x.abs() * 4).long().clamp(0, 19), "labels": y}
    )


class Moved:
    """A batch class of one's own, which Lightning moves by its ``to``."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def to(self, device, non_blocking=False):
        return Moved(self.x.to(device), self.y.to(device))

    def __len__(self):
        return len(self.y)


@ordinary
def batch_of_an_own_class(pl):
    return collated(unpacking(pl, lambda batch: (batch.x, batch.y)), Moved)


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@ordinary
def batch_with_slots(pl):
    return collated(unpacking(pl, lambda batch: (batch.x, batch.y)), Slots, unseen=True)


@ordinary
def nested_tuples(pl):
    module = unpacking(pl, lambda batch: (batch[0] * batch[1][1], batch[1][0]))
    return collated(module, lambda x, y: (x, (y, torch.ones_like(x))))


@ordinary
def tensors_of_several_sizes(pl):
    """As detection has it: lists of tensors, one for each example."""

    class Net(plain(pl)):
        def losses(self, batch):
            images, targets = batch
            logits = torch.stack([self.net(image).mean(0) for image in images])
            labels = torch.stack([target["label"] for target in targets])
            return functional.cross_entropy(logits, labels, reduction="none")

    def collate(x, y):
        images = [row.repeat(2 + n, 1) for n, row in enumerate(x)]
        pairs = zip(y, images, strict=True)
        return images, [{"label": label, "boxes": image} for label, image in pairs]

    return collated(Net(), collate)


@ordinary
def graph_batch(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            nodes, edges, graph = batch["nodes"], batch["edges"], batch["graph"]
            messages = torch.zeros_like(nodes).index_add(0, edges[1], nodes[edges[0]])
            hidden = self.net(nodes + messages)
            pooled = hidden.new_zeros(len(batch["y"]), 3).scatter_add(
                0, graph[:, None].expand_as(hidden), hidden
            )
            return functional.cross_entropy(pooled, batch["y"], reduction="none")

    def collate(x, y):
        count = 3 * len(x)
        chain = torch.stack([torch.arange(count), torch.arange(count).roll(1)])
        return {
            "nodes": x.repeat_interleave(3, 0), "edges": chain, "y": y,
            "graph": torch.arange(len(x)).repeat_interleave(3),
        }  # fmt: skip

    return collated(Net(), collate)


@ordinary
def text_beside_tensors(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            assert all(isinstance(text, str) for text in batch["text"])
            self.names = batch["text"]  # public: no tensor of the holdout
            return super().losses((batch["x"], batch["y"]))

    return collated(Net(), lambda x, y: {"x": x, "y": y, "text": ["a"] * len(x), "none": None})


@ordinary
def transfer_hooks(pl):
    class Net(plain(pl)):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return {"x": batch[0], "y": batch[1]}

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return {key: value.to(device) for key, value in batch.items()}

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return (batch["x"] / 2, batch["y"])

    return Net()


@ordinary
def step_of_the_batch_alone(pl):
    class Net(plain(pl)):
        def validation_step(self, batch):
            return {"val_loss": self.losses(batch)}

    return Net()


@ordinary
def step_with_a_loader_index(pl):
    class Net(plain(pl)):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            assert dataloader_idx == 0
            return {"val_loss": self.losses(batch)}

    return Net()


@ordinary
def step_for_the_holdout(pl):
    class Net(plain(pl)):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.losses(batch).mean())

        def holdout_step(self, batch, batch_idx):
            return {"val_loss": self.losses(batch)}

    return Net()
