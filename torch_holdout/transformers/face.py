"""A Hugging Face ``Trainer`` as the guard's parts see a training loop."""

import math
from enum import Enum
from types import SimpleNamespace
from typing import Any, final

from torch import nn
from transformers import EarlyStoppingCallback
from transformers.trainer_utils import IntervalStrategy

from torch_holdout.training.sealed_checks import Words

WORDS = Words(
    fit="trainer.train()",
    resume="trainer.train(resume_from_checkpoint=...)",
    validate="trainer.evaluate()",
    keep="HoldoutTrainer(..., keep=folder)",
    anew=(
        "load them (Model.from_pretrained(...)) and call trainer.train() without "
        "resume_from_checkpoint"
    ),
)


class _Doing(str, Enum):
    """What a ``Trainer`` does, as Lightning calls it."""

    FIT = "fit"
    VALIDATE = "validate"


@final
class TrainerFace:
    """What the courses and the first look read of a Lightning Trainer, read from this one.

    Args:
        trainer: The ``Trainer``.
        others: Further objects whose attributes code of the user's may set in a pass.
    """

    check_val_every_n_epoch = val_check_batch = num_training_batches = 1

    def __init__(self, trainer: Any, others: list[Any]) -> None:
        self._trainer = trainer
        self._others = others
        self.training = False  # between the start of train() and its end
        self.sanity_checking = False  # while a batch is run before the first training step
        self.callback_metrics: dict[str, Any] = {}

    @property
    def lightning_module(self) -> nn.Module:
        """The model, as it is saved."""
        model: nn.Module = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return model

    @property
    def callbacks(self) -> list[Any]:
        """Callbacks, the ``Trainer`` and whatever else user code may keep values in."""
        return [*self._trainer.callback_handler.callbacks, self._trainer, *self._others]

    @property
    def _logger_connector(self) -> Any:
        return self._trainer.state  # where logged values are kept

    @property
    def logger(self) -> SimpleNamespace:
        """What names the run: its own name, or the folder it writes to."""
        args = self._trainer.args
        return SimpleNamespace(log_dir=args.run_name or args.output_dir)

    @property
    def state(self) -> SimpleNamespace:
        """Whether this is training or an evaluation of its own."""
        return SimpleNamespace(fn=_Doing.FIT if self.training else _Doing.VALIDATE)

    @property
    def should_stop(self) -> bool:
        """Whether training ends after this step."""
        return bool(self._trainer.control.should_training_stop)

    @should_stop.setter
    def should_stop(self, stop: bool) -> None:
        self._trainer.control.should_training_stop = stop

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process."""
        return bool(self._trainer.is_world_process_zero())

    @property
    def world_size(self) -> int:
        """How many processes train."""
        return int(self._trainer.args.world_size)

    @property
    def default_root_dir(self) -> str:
        """Where the run writes."""
        return str(self._trainer.args.output_dir)

    @property
    def current_epoch(self) -> int:
        """The epoch; the step beside it tells passes apart."""
        return int(self._trainer.state.epoch or 0)

    @property
    def fit_loop(self) -> SimpleNamespace:
        """The step that training has come to."""
        step = SimpleNamespace(total_batch_idx=self._trainer.state.global_step)
        return SimpleNamespace(min_epochs=None, min_steps=None, epoch_loop=step)

    @property
    def max_epochs(self) -> int | None:
        """The epoch that would be reached with one evaluation in each; None if not known."""
        planned = planned_evaluations(self._trainer)
        return None if planned is None else self.current_epoch + planned

    @property
    def stoppers(self) -> SimpleNamespace:
        """Callbacks that stop training by a published value, and how often they look."""
        args = self._trainer.args
        stopping = [
            EarlyStopping(args.metric_for_best_model, each)
            for each in self._trainer.callback_handler.callbacks
            if isinstance(each, EarlyStoppingCallback)
        ]
        epochs = planned_evaluations(self._trainer)
        return SimpleNamespace(callbacks=stopping, max_epochs=epochs, check_val_every_n_epoch=1)


class EarlyStopping:
    """An ``EarlyStoppingCallback``, described as Lightning's ``EarlyStopping`` is."""

    def __init__(self, monitor: str | None, callback: EarlyStoppingCallback) -> None:
        self.monitor = (monitor or "").removeprefix("eval_")
        self.min_delta = callback.early_stopping_threshold
        self.patience = callback.early_stopping_patience


def planned_evaluations(trainer: Any) -> int | None:
    """Return how many evaluations a training plans from its current step on; None if unknown."""
    args, state = trainer.args, trainer.state
    left = state.max_steps - state.global_step
    if left <= 0 or state.num_train_epochs <= 0:
        return None
    if args.eval_strategy == IntervalStrategy.STEPS:
        every = int(state.eval_steps or args.eval_steps or 1)
        return int(left) // max(1, every)
    if args.eval_strategy == IntervalStrategy.EPOCH:
        return int(max(0, math.ceil(state.num_train_epochs) - int(state.epoch or 0)))
    return 0
