"""A pass of the holdout in a ``Trainer``: batches go in, guarded values come out."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import EvalPrediction

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.tracebacks import with_empty_frames
from torch_holdout.holdout.runs import named_run
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.interception import MetricWatch, Step
from torch_holdout.training.loaders import HoldoutLoader
from torch_holdout.transformers.closed_loader import ClosedLoader
from torch_holdout.transformers.default_values import default_values
from torch_holdout.transformers.loaders import guess_batches, own_share
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


def _evaluate(guard: "TrainerGuard", loader: Any, ignore_keys: list[str] | None) -> None:
    trainer, face = guard.trainer, guard.face
    loader = own_share(loader, trainer.args.eval_batch_size)
    checked = HoldoutLoader(loader, guard.holdout)
    model = evaluated_model(trainer)
    step = _step(guard, model, ignore_keys)
    rank, world = rank_and_world()
    evaluation = Evaluation(
        guard.holdout,
        face.lightning_module,
        version=guard.version,
        rank=rank,
        world=world,
        loader=checked,
        confirmed=guard.course.confirmed,
        step=_STEP,
    )
    guard.published = {}
    handler = trainer.callback_handler
    handler.eval_dataloader = ClosedLoader(loader)
    watch = MetricWatch([face.lightning_module, *face.callbacks])

    def looked_at(batch: Any) -> Any:
        output = step(batch)
        watch.refuse(drop=guard.unguarded == "drop", warn=guard._warn_once)
        return output

    with guard.trap.arm():
        for batch in loader:
            if not evaluation.started:
                evaluation.look_at_weights()
                for examples, counts in guess_batches(trainer, guard.holdout, guard.guess_sets):
                    values = step(examples)
                    if counts:
                        evaluation.add_guess(values)
            output = guard.first_batches.show(
                guard,
                _STEP,
                looked_at,
                batch,
                face,
                owner=0,
                used=True,
            )
            guard.trap.look()
            evaluation.add(output)
            evaluation.look_when_complete()
            trainer.control = handler.on_prediction_step(
                trainer.args, trainer.state, trainer.control
            )
    with named_run(guard.label()):
        guard.course.finish(guard, face, evaluation)


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
