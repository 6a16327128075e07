"""What is logged while the holdout is evaluated: nothing but public keys."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, final

from torch_holdout.errors import UnguardedLogError
from torch_holdout.training.advice import diff_for, public_advice
from torch_holdout.training.first_look.marking import is_marked
from torch_holdout.training.first_look.places import calling_place

_EVENTS = ("on_log", "on_evaluate", "on_predict")  # which hand numbers to callbacks
_ADDED = frozenset({"epoch", "step", "num_input_tokens_seen"})  # by the Trainer itself


@final
class LogTrap:
    """Refuses what is logged during a pass: by ``log``, to callbacks, or in ``log_history``.

    Args:
        trainer: The ``Trainer``.
        public: Keys that may be logged.
        unguarded: ``"raise"``, or ``"drop"`` with a warning.
        warn: Called with a warning.
        looks: Tells whether values of a batch are seen as such now.
    """

    def __init__(
        self,
        trainer: Any,
        public: Sequence[str],
        unguarded: Literal["raise", "drop"],
        warn: Callable[[str], None],
        looks: Callable[[], bool],
    ) -> None:
        self._trainer = trainer
        self._public = frozenset(public)
        self._unguarded = unguarded
        self._warn = warn
        self._looks = looks
        self._history = 0
        self.armed = False
        self._writes = True

    @contextmanager
    def arm(self, *, writes: bool = True) -> Iterator[None]:
        """Refuse logs inside the block, from whatever code; public ones are written or left out."""
        handler = self._trainer.callback_handler
        originals = {event: getattr(handler, event) for event in _EVENTS}

        def trapped(event: str) -> Callable[..., Any]:
            def call(args: Any, state: Any, control: Any, numbers: Any, **kwargs: Any) -> Any:
                if self._passes(numbers) and writes:
                    return originals[event](args, state, control, numbers, **kwargs)
                return control

            return call

        self._history = len(self._trainer.state.log_history)
        for event in _EVENTS:
            vars(handler)[event] = trapped(event)
        self.armed, self._writes = True, writes
        try:
            yield
            self.look()
        finally:
            self.armed, self._writes = False, True
            for event in _EVENTS:
                vars(handler).pop(event, None)
            self._unwritten()

    def allowed(self, logs: dict[str, Any]) -> dict[str, Any]:
        """Return what of some logs may be logged now; raise for the rest, or warn."""
        if not self.armed:
            return logs
        passes = self._passes(logs)
        if not self._writes:
            return {}
        return logs if passes else {key: v for key, v in logs.items() if key in self._public}

    def look(self) -> None:
        """Remove what was written into ``log_history`` past ``log``, and refuse it."""
        for entry in self._unwritten():
            self._passes(entry)

    def _unwritten(self) -> list[dict[str, Any]]:
        """Take entries that are not public out of the history, and return them."""
        history = self._trainer.state.log_history
        new = history[self._history :]
        public = [entry for entry in new if set(entry) <= self._public | _ADDED]
        history[self._history :] = public
        self._history = len(history)
        return [entry for entry in new if not set(entry) <= self._public | _ADDED]

    def _passes(self, logs: Any) -> bool:
        names = [str(key) for key in logs if key not in self._public | _ADDED]
        if not names:
            return True
        if self._unguarded == "drop":
            self._warn(f"{names}, logged during an evaluation of the holdout, were dropped")
            return False
        harmless = [name for name in names if self._looks() and not is_marked(logs[name])]
        raise UnguardedLogError(
            f"Expected nothing but guarded values during an evaluation of the holdout, but {names} "
            f"were logged ({calling_place()}); values are not shown here."
            f"{public_advice(harmless)} {diff_for('prediction_step')}"
        )
