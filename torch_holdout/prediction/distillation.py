"""Label public data once, privately, and train a student on it that may be asked without limit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from torch_holdout._shared.checks import require_instance, require_whole
from torch_holdout._shared.text import up
from torch_holdout.accounting import compose
from torch_holdout.errors import BudgetExhaustedError, HoldoutError, InvalidArgumentError
from torch_holdout.prediction.label_file import LabelFile
from torch_holdout.prediction.mechanisms.base import NO_CONSENSUS
from torch_holdout.prediction.predictor import PrivatePredictorHooks


@final
@dataclass(frozen=True, kw_only=True)
class Distilled:
    """A student, and what its labels cost the training records.

    Attributes:
        student: Trained on public inputs and private labels; asking it costs nothing more.
        labels: One per public input, -1 where the members did not agree.
        epsilon: What these labels cost by themselves at ``delta``; their number was fixed before
            the first. What else the account answers comes on top, in all within its budget.
        relation: Who is protected.

    Example:
        >>> print(Distilled(
        ...     student=nn.Linear(8, 3), labels=torch.tensor([0, 2, -1, 2]), epsilon=1.5,
        ...     delta=1e-5, relation="replacing one record"))
        student of 3 labels (of 4 queries): epsilon 1.5 at delta 1e-05, replacing one record; asking
        the student costs nothing more
    """

    student: nn.Module
    labels: Tensor
    epsilon: float
    delta: float | None
    relation: str

    def __str__(self) -> str:
        kept = int((self.labels != NO_CONSENSUS).sum())
        at = "" if self.delta is None else f" at delta {self.delta:g}"
        return (
            f"student of {kept} labels (of {len(self.labels)} queries): epsilon "
            f"{up(self.epsilon, digits=4)}{at}, {self.relation}; asking the student costs nothing "
            f"more"
        )


def distill(
    predictor: PrivatePredictorHooks,
    public_loader: Iterable[Any],
    student: nn.Module,
    *,
    trainer: Any,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    batch_size: int = 64,
    labels: str | Path | None = None,
) -> Distilled:
    """Label public inputs within the budget, each once, and train a student on them.

    Guarantee:
        The student is a function of public inputs and of private answers: it is as private as they
        are, whatever is asked of it, if the inputs are public and were not chosen by private data.

    Args:
        predictor: Its mechanism must answer with labels.
        public_loader: Public inputs; of tuples and lists the first part. All are labelled or none.
        student: A LightningModule, trained as it is on batches of (inputs, labels), or any module
            of inputs, trained by ``optimizer`` and ``loss``.
        trainer: A Lightning Trainer, of the predictor's namespace.
        optimizer: For a student that is not a LightningModule, e.g. ``partial(Adam, lr=1e-3)``.
        loss: Of scores and labels, for a student that is not a LightningModule.
        batch_size: For labelling and training.
        labels: A file that keeps paid labels: after an interruption, the same call continues. It
            knows the account, the model, the mechanism, the budget and the inputs they are of; a
            file of others is refused.

    Example:
        >>> from functools import partial
        >>> import warnings
        >>> import lightning as L
        >>> from torch_holdout.prediction import (
        ...     Partition, PartitionedEnsemble, PrivacyBudget, PrivatePredictor, SoftMajority)
        >>> warnings.simplefilter("ignore")  # of Lightning, about a loader without workers
        >>> optimizer = partial(torch.optim.SGD, lr=0.1)
        >>> ensemble = PartitionedEnsemble(  # trained before, see there
        ...     lambda: nn.Linear(8, 3), Partition(num_parts=50, key="index", seed=7),
        ...     loss=functional.cross_entropy, optimizer=optimizer)
        >>> predictor = PrivatePredictor(
        ...     ensemble, SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=2.0, delta=1e-5),
        ...     ledger="memory://", name="records", num_outputs=3)
        >>> public = DataLoader(TensorDataset(torch.zeros(10, 8)), batch_size=5)
        >>> quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        >>> trainer = L.Trainer(max_epochs=1, enable_model_summary=False, **quiet)
        >>> student = nn.Linear(8, 3)
        >>> distilled = distill(predictor, public, student, trainer=trainer, optimizer=optimizer)
        >>> len(distilled.labels), predictor.status().queries
        (10, 10)
    """
    require_instance("predictor", predictor, PrivatePredictorHooks)
    require_whole("batch_size", batch_size, 1, 2**31)
    lightning = predictor.module_class
    if not isinstance(student, lightning) and optimizer is None:
        raise InvalidArgumentError(
            "Expected `optimizer` for a student that is not a LightningModule, e.g. "
            "partial(torch.optim.Adam, lr=1e-3). Nothing was charged."
        )
    _require_one_process(predictor, trainer)
    if predictor.mechanism.answers != "labels":
        raise InvalidArgumentError(
            "Expected a mechanism that answers with labels, e.g. SoftMajority. Nothing was charged."
        )
    inputs = _gathered(public_loader)
    if not isinstance(student, lightning):
        _require_student(student, loss, inputs)
    answers = _labelled(predictor, inputs, batch_size, None if labels is None else Path(labels))
    kept = answers != NO_CONSENSUS
    if not bool(kept.any()):
        raise InvalidArgumentError(
            "Expected at least one label, but members agreed on none. They were asked and charged; "
            "take a lower threshold or a mechanism that always answers."
        )
    loader = DataLoader(TensorDataset(inputs[kept], answers[kept]), batch_size, shuffle=True)
    plain = not isinstance(student, lightning)
    trainer.fit(_taught(lightning, student, optimizer, loss) if plain else student, loader)
    # Each was paid for in this account and by this mechanism, also those of the file.
    delta = predictor.records.budget.delta
    cost = compose([replace(predictor.charge(), count=len(inputs))], delta)
    return Distilled(
        student=student,
        labels=answers,
        epsilon=cost.epsilon,
        delta=delta,
        relation=predictor.plan().relation,
    )


def _require_one_process(predictor: PrivatePredictorHooks, trainer: Any) -> None:
    if not isinstance(trainer, predictor.trainer_class):
        raise InvalidArgumentError(
            f"Expected a Trainer of the predictor's Lightning package, "
            f"{predictor.trainer_class.__module__}, but got {type(trainer).__module__}."
            f"{type(trainer).__name__}. Nothing was charged."
        )
    if trainer.world_size > 1:
        raise InvalidArgumentError(
            f"Expected a Trainer with one process, but this one has {trainer.world_size}: each "
            f"would label the inputs anew, and the student would learn from all those labels. "
            f"Distil in one process; nothing was charged."
        )


@torch.no_grad()
def _require_student(
    student: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor
) -> None:
    """Try the student and the loss on two public inputs, before anything is paid."""
    training, first = student.training, inputs[:2]
    device = next((tensor.device for tensor in student.parameters()), torch.device("cpu"))
    try:
        scores = student.eval()(first.to(device))
        loss(scores, torch.zeros(len(first), dtype=torch.int64, device=device))
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    else:
        return
    finally:
        student.train(training)
    raise InvalidArgumentError(
        f"Expected the student and the loss to take the public inputs, but they raised {failure} "
        f"Nothing was charged."
    )


def _gathered(loader: Iterable[Any]) -> Tensor:
    parts = [batch[0] if isinstance(batch, tuple | list) else batch for batch in loader]
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        raise InvalidArgumentError(
            "Expected a loader of at least one batch whose inputs are a tensor. Nothing was "
            "charged."
        )
    return torch.cat([part.detach().cpu() for part in parts])


def _labelled(
    predictor: PrivatePredictorHooks, inputs: Tensor, batch_size: int, path: Path | None
) -> Tensor:
    """Label the inputs without a label; each label is kept as soon as it is charged."""
    file = None if path is None else LabelFile(path, predictor, inputs)
    paid = torch.empty(0, dtype=torch.int64) if file is None else file.resumed()
    missing, left = len(inputs) - len(paid), predictor.plan().queries_left
    if missing > left:
        raise BudgetExhaustedError(
            f"Expected a budget for {missing} labels, but {left} queries are left. Nothing was "
            f"charged: give fewer public inputs, or a mechanism with more noise (for_budget)."
        )
    device = next((tensor.device for tensor in predictor.parameters()), torch.device("cpu"))
    starts = range(len(paid), len(inputs), batch_size)
    for start in starts:  # all of them, before any is paid for
        predictor.require_answerable(inputs[start : start + batch_size].to(device))
    if file is not None:
        file.begin(paid)
    for start in starts:
        try:
            labels = predictor.label(inputs[start : start + batch_size].to(device))
        except HoldoutError as error:
            raise type(error)(f"{error} {_told_of(len(paid), path)}".rstrip()) from None
        paid = torch.cat([paid, labels.cpu()])
        if file is not None:
            file.keep(paid)
    return paid


def _told_of(paid: int, path: Path | None) -> str:
    """Say what becomes of the labels that were paid for before a stop."""
    if not paid:
        return ""
    lost = "are lost: pass labels= to keep them as they are paid for"
    kept = f"are kept in {path}: the same call goes on from there"
    return f"The {paid:,} labels before this batch were charged and {kept if path else lost}."


def _taught(
    lightning: Any,
    student: nn.Module,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> nn.Module:
    """Return a plain module wrapped so that a Trainer can fit it."""

    class Student(lightning):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.student = student

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, target = batch
            return loss(self.student(inputs), target)

        def configure_optimizers(self) -> Any:
            return None if optimizer is None else optimizer(self.student.parameters())

    return Student()
