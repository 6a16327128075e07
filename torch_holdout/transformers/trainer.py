"""``HoldoutTrainer``: Hugging Face's ``Trainer``, whose evaluations ask a holdout."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import EvalPrediction, Trainer
from transformers.trainer_utils import (
    EvalLoopOutput,
    PredictionOutput,
    TrainOutput,
    default_compute_objective,
)

from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.mechanisms import Patience
from torch_holdout.transformers.guard import TrainerGuard
from torch_holdout.transformers.passes import guarded_metrics
from torch_holdout.transformers.requirements import require_own_loop

Values = Callable[[EvalPrediction], dict[str, Any]]


class HoldoutTrainer(Trainer):
    """Train with a holdout as ``eval_dataset``, so that every decision reads only guarded values.

    Evaluations of the holdout run a loop of their own: per-example values are accumulated on the
    device, the holdout is asked once per pass, and its answers are published as ``eval_<name>``
    before ``EarlyStoppingCallback``, ``load_best_model_at_end``, schedulers, trackers,
    ``log_history``, checkpoints and the model card read them, with ``eval_holdout/budget_left``,
    ``eval_holdout/releases``, ``eval_holdout/exhausted``, ``eval_holdout/<name>/is_release`` and
    ``.../is_stale``. It is a mixin too: ``class Mine(HoldoutTrainer, Seq2SeqTrainer)``.

    Guarantee:
        Nothing of a pass becomes a Python number, an array or an ``EvalPrediction`` of the whole
        set; what your code keeps, reads or writes of the first batch is refused by name.

    Args:
        *args: As for the ``Trainer``.
        holdout: The account. ``eval_dataset`` are its examples, or a dictionary of datasets one of
            which is, and the others are named in ``public_eval``.
        values: ``values(p) -> {statistic: per-example values}`` with ``p`` an ``EvalPrediction`` of
            one batch, as tensors: ``p.predictions``, ``p.label_ids``, ``p.inputs``. Several
            arguments of a statistic are a tuple. None: for statistics called ``loss`` (the
            cross-entropy) and ``accuracy``, of classes or of tokens, and for ``th.CrossEntropy``
            and ``th.ZeroOne``.
        stop: For a sealed holdout: what stops the training, e.g. ``th.Patience("loss", 5)``.
            Nothing is logged but counts and prices; when training ends the best weights are put
            back, and ``trainer.outcome`` says how the run ended.
        keep: For a sealed holdout: a folder for files of weights; None: copies in memory, and one
            file below ``output_dir``.
        restore: Whether the best weights of a sealed run are put back.
        public_eval: Keys of ``eval_dataset`` without records of the holdout's, evaluated as usual.
        guess_dataset: Training examples for a mechanism that compares with the training value,
            e.g. ``th.fixed_subset(train_set, 1000, seed=0)``; a list for several estimation sets.
        on_exhausted: ``"stop"`` training, ``"freeze"`` (go on; the last answer is repeated, marked
            stale), or ``"raise"``.
        unguarded: What happens to whatever your code logs or keeps during a pass:
            ``"raise"``, or ``"drop"`` it with a warning.
        public: Keys that may be logged during a pass, attributes that may keep values, functions
            that may read them.
        version: Whatever else decides the values (preprocessing, decoding, ...).
        run: What the run is called in the report; None: ``args.run_name``, or when it started.
        check_data: Whether records are compared with the account and with the other datasets.
        **kwargs: As for the ``Trainer``.

    Example:
        >>> import torch, torch_holdout as th
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> from torch_holdout.transformers import HoldoutTrainer
        >>> ids = torch.arange(320).reshape(80, 4) % 50
        >>> rows = [{"input_ids": x, "labels": x.sum() % 2} for x in ids]
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="reviews", size=30, statistics={"loss": th.CrossEntropy(2.0)},
        ...     mechanism=th.Ladder(step=0.01), budget=20)
        >>> model = BertForSequenceClassification(BertConfig(
        ...     vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        ...     intermediate_size=8))
        >>> args = TrainingArguments(
        ...     output_dir="unused", report_to="none", disable_tqdm=True, use_cpu=True)
        >>> trainer = HoldoutTrainer(
        ...     model, args, train_dataset=rows[:50], eval_dataset=rows[50:], holdout=holdout)
        >>> trainer.holdout.budget_left, trainer.outcome
        (20, None)
    """

    def __init__(
        self,
        *args: Any,
        holdout: ReusableHoldout,
        values: Values | None = None,
        stop: Patience | None = None,
        keep: str | Path | None = None,
        restore: bool = True,
        public_eval: Sequence[str] = (),
        guess_dataset: Any = None,
        on_exhausted: Literal["stop", "freeze", "raise"] = "stop",
        unguarded: Literal["raise", "drop"] = "raise",
        public: Sequence[str] = (),
        version: str = "",
        run: str | None = None,
        check_data: bool = True,
        **kwargs: Any,
    ) -> None:
        require_own_loop(type(self), HoldoutTrainer)
        guard = TrainerGuard(
            holdout,
            values=values,
            stop=stop,
            keep=keep,
            restore=restore,
            on_exhausted=on_exhausted,
            unguarded=unguarded,
            public=public,
            version=version,
            run=run,
            check_data=check_data,
        )
        self.holdout_guard = guard
        super().__init__(*args, **kwargs)
        guard.bind(self, kwargs.get("eval_dataset"), public_eval, guess_dataset)

    @property
    def holdout(self) -> ReusableHoldout:
        """The account."""
        return self.holdout_guard.holdout

    @property
    def outcome(self) -> Outcome | None:
        """How the sealed run of the last training ended; None while it is open."""
        return self.holdout_guard.outcome

    @property
    def best_model_path(self) -> str | None:
        """The file of the best weights, once a sealed run has named them."""
        return self.holdout_guard.best_model_path

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train as the ``Trainer`` does; a sealed run that is broken off stays open."""
        with self.holdout_guard.training():
            return super().train(*args, **kwargs)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **kwargs: Any,
    ) -> dict[str, float]:
        """Ask the holdout; other datasets are evaluated as usual, unless they have its records."""
        with self.holdout_guard.routed(eval_dataset):
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **kwargs)

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> PredictionOutput:
        """Predict as the ``Trainer`` does; refused for records of the holdout's."""
        with self.holdout_guard.predicted(test_dataset):
            return super().predict(test_dataset, *args, **kwargs)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return a loader; the holdout's is handed to its own evaluation only."""
        self.holdout_guard.require_readable(eval_dataset)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return a loader; refused for records of the holdout's."""
        self.holdout_guard.data.require_apart(test_dataset, "get_test_dataloader()")
        return super().get_test_dataloader(test_dataset)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Run a pass of the holdout, or the ``Trainer``'s own loop for any other data."""
        guard = self.holdout_guard
        if guard.takes(dataloader):
            metrics = guarded_metrics(guard, dataloader, ignore_keys, metric_key_prefix)
            return EvalLoopOutput(None, None, metrics, guard.holdout.size)  # type: ignore[arg-type]
        return super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as the ``Trainer`` does; during a pass of the holdout, only what is public."""
        allowed = self.holdout_guard.trap.allowed(logs)
        if allowed or not logs:
            super().log(allowed, *args, **kwargs)

    def hyperparameter_search(
        self,
        hp_space: Any = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Search as the ``Trainer`` does, on guarded values; refused for a sealed holdout.

        Every evaluation of every trial asks the holdout. Without ``compute_objective`` the
        ``Trainer``'s own is used (the loss if it is the only statistic, else the sum of the
        others), which does not see the counts that are published with the values.
        """
        self.holdout_guard.require_values("hyperparameter_search()")
        objective = _objective if compute_objective is None else compute_objective
        return super().hyperparameter_search(hp_space, objective, *args, **kwargs)


def _objective(metrics: dict[str, float]) -> float:
    """Return the ``Trainer``'s objective of what was published, without counts and times."""
    beside = ("holdout/", "model_preparation_time")
    values = {key: each for key, each in metrics.items() if not any(b in key for b in beside)}
    return default_compute_objective(values)
