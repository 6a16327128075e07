"""The part of a guard that checkpoints keep: the sealed run's id, or the last published values."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

_NAME = "HoldoutState"  # under which ``trainer_state.json`` has it


def add_state_callback(
    trainer: Any,
    state_of: Callable[[], dict[str, Any]],
    begins: Callable[[dict[str, Any]], None],
    ends: Callable[[], None],
) -> None:
    """Put a callback first that keeps the guard's state, and tells it when training begins.

    The ``Trainer`` may make the callback again from a checkpoint, without arguments: so the class
    knows the guard.
    """

    class HoldoutState(TrainerCallback, ExportableState):
        """Keeps the guard's state in checkpoints."""

        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"holdout": state_of()}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            stored = state.stateful_callbacks.get(_NAME, {})
            begins(stored.get("attributes", {}).get("holdout", {}))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            ends()

    trainer.callback_handler.callbacks.insert(0, HoldoutState())
