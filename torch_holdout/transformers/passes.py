"""A pass of the holdout in a ``Trainer``: batches go in, guarded values come out."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import EvalPrediction

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.tracebacks import with_empty_frames
from torch_holdout.holdout.runs import named_run
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.first_look.looking import Before
from torch_holdout.training.interception import MetricWatch, Step
from torch_holdout.training.loaders import HoldoutLoader
from torch_holdout.transformers.closed_loader import ClosedLoader
from torch_holdout.transformers.default_values import default_values
from torch_holdout.transformers.loaders import first_batch, guess_batches, own_share
from torch_holdout.transformers.models import evaluated_model, shifts_labels

if TYPE_CHECKING:
    from torch_holdout.transformers.guard import TrainerGuard

_STEP = "prediction_step"


def guarded_metrics(
    guard: "TrainerGuard", loader: Any, ignore_keys: list[str] | None, prefix: str
) -> dict[str, float]:
    """Make a pass over the holdout and return what its door published, under the prefix."""
    guard.data.check()
    with_empty_frames(lambda: _evaluate(guard, loader, ignore_keys))
    return {
        name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": value
        for name, value in guard.published.items()
    }


def look_ahead(guard: "TrainerGuard") -> None:
    """Run the code of a pass on one batch before the first training step; nothing of it stays.

    What would be refused in the first evaluation is refused before an epoch has been trained.
    """
    with_empty_frames(lambda: _look_ahead(guard))


def _look_ahead(guard: "TrainerGuard") -> None:
    trainer, face = guard.trainer, guard.face
    before = Before([*face.lightning_module.modules(), *face.callbacks, trainer.state])
    face.sanity_checking = True
    try:
        loader = guard.own_loader()
        work = _Pass(guard, own_share(loader, trainer.args.eval_batch_size), None)
        with guard.trap.arm(writes=False):
            for batch in first_batch(work.loader):
                work.add(batch, used=False)
    finally:
        face.sanity_checking = False
        before.put_back()


def _evaluate(guard: "TrainerGuard", loader: Any, ignore_keys: list[str] | None) -> None:
    trainer = guard.trainer
    work = _Pass(guard, own_share(loader, trainer.args.eval_batch_size), ignore_keys)
    evaluation = work.evaluation
    guard.published = {}
    handler = trainer.callback_handler
    handler.eval_dataloader = ClosedLoader(work.loader)
    with guard.trap.arm():
        for batch in work.loader:
            if not evaluation.started:
                evaluation.look_at_weights()
                for examples, counts in guess_batches(trainer, guard.holdout, guard.guess_sets):
                    values = work.step(examples)
                    if counts:
                        evaluation.add_guess(values)
            work.add(batch, used=True)
            evaluation.look_when_complete()
            trainer.control = handler.on_prediction_step(
                trainer.args, trainer.state, trainer.control
            )
    with named_run(guard.label()):
        guard.course.finish(guard, guard.face, evaluation)


class _Pass:
    """What a pass consists of: this process's loader, the user's code and the sums."""

    def __init__(self, guard: "TrainerGuard", loader: Any, ignore_keys: list[str] | None) -> None:
        self._guard = guard
        self.loader = loader
        checked = HoldoutLoader(loader, guard.holdout)
        self.step = _step(guard, evaluated_model(guard.trainer), ignore_keys)
        self._watch = MetricWatch([guard.face.lightning_module, *guard.face.callbacks])
        rank, world = rank_and_world()
        self.evaluation = Evaluation(
            guard.holdout,
            guard.face.lightning_module,
            version=guard.version,
            rank=rank,
            world=world,
            loader=checked,
            confirmed=guard.course.confirmed,
            step=_STEP,
        )

    def add(self, batch: Any, *, used: bool) -> None:
        """Add the values of a batch; the first one is looked at."""
        guard = self._guard
        output = guard.first_batches.show(
            guard, _STEP, self._looked_at, batch, guard.face, owner=0, used=used
        )
        guard.trap.look()
        self.evaluation.add(output)

    def _looked_at(self, batch: Any) -> Any:
        output = self.step(batch)
        drops = self._guard.unguarded == "drop"
        self._watch.refuse(drop=drops, warn=self._guard._warn_once)
        return output


def _step(guard: "TrainerGuard", model: Any, ignore_keys: list[str] | None) -> Step:
    """Return what turns a batch into per-example values: the user's code, as evaluations run it."""
    trainer, values = guard.trainer, guard.values
    statistics, shifts = guard.holdout.statistics, shifts_labels(guard.face.lightning_module)

    def run(batch: Any) -> Any:
        with torch.no_grad():
            _, logits, labels = trainer.prediction_step(
                model, batch, prediction_loss_only=False, ignore_keys=ignore_keys
            )
            if trainer.preprocess_logits_for_metrics is not None:
                logits = trainer.preprocess_logits_for_metrics(logits, labels)
            prediction = EvalPrediction(logits, labels, inputs=trainer._prepare_inputs(batch))
            if values is None:
                return default_values(statistics, prediction, shifts=shifts)
            return values(prediction)

    return run
