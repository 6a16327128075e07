"""The first batch of a guarded run, shown to user code as marked tensors."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, final

from torch_holdout._fingerprints.weights import is_sharded
from torch_holdout._shared.distributed import on_any_rank
from torch_holdout.errors import HoldoutError, UnguardedLogError
from torch_holdout.training.advice import not_public, refusal
from torch_holdout.training.first_look.looking import holds_marks, look_at
from torch_holdout.training.first_look.marking import DataUse
from torch_holdout.training.first_look.pooled import require_unpooled
from torch_holdout.training.guarding import Watching


@final
class FirstBatches:
    """Looks at what user code does with the holdout's data, before that can matter.

    Once in the sanity check, and once in the first pass of a fit: code may skip the sanity check.
    Further runs of ``validate`` or ``test`` with the same module are not looked at again.
    """

    def __init__(self, module: Any = None) -> None:
        self._module = None if module is None else weakref.ref(module)
        self._shown: set[tuple[bool, str, int]] = set()  # in a sanity check or not, what, whose
        self.looking = False

    def for_run(self, module: Any, *, fits: bool) -> "FirstBatches":
        """Return what a new run with a module starts from."""
        same = self._module is not None and self._module() is module
        return self if same and not fits else FirstBatches(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstBatches, ()  # a copy is for another module

    def show(
        self,
        guard: Watching,
        name: str,
        run: Callable[[Any], Any],
        batch: Any,
        trainer: Any,
        *,
        owner: int,
        used: bool,
    ) -> Any:
        """Run code on a first batch, marked if it is due; raise or warn if it kept something.

        ``owner`` tells callbacks of one class apart; ``used`` says whether the result counts: then
        it is computed once more, unmarked.
        """
        key = (trainer.sanity_checking, name, owner)
        if key in self._shown:
            return run(batch)
        self._shown.add(key)
        module, is_step = trainer.lightning_module, name.endswith("step")
        owners = [*module.modules(), *trainer.callbacks, trainer._logger_connector]

        def excuse(trouble: str) -> None:
            guard._warn_once(f"what `{name}` keeps could not be checked: {trouble}")

        def run_seen(batch: Any) -> Any:
            self.looking = holds_marks(batch)
            try:
                return run(batch)
            finally:
                self.looking = False

        judge = partial(_judge, guard, name, together=is_step)
        result = look_at(run_seen, batch, owners, repeat=used, judge=judge, excuse=excuse)
        # Ranks that share weights take each step together, also this one.
        if is_step and not is_sharded(module):
            require_unpooled(run, batch, result, owners)
        return result


def _judge(
    guard: Watching,
    name: str,
    findings: list[DataUse],
    error: HoldoutError | None,
    *,
    together: bool,
) -> None:
    """Raise or warn about what code did; ``together``: on every rank, so that none waits."""
    findings = not_public(findings, guard.public)
    if findings and guard.unguarded == "drop":
        guard._warn_once(refusal(name, findings))
    elif findings and error is None:
        error = UnguardedLogError(refusal(name, findings))
    elsewhere = together and on_any_rank(error is not None)
    if error is not None:
        raise error
    if elsewhere:
        raise UnguardedLogError(
            f"Expected `{name}` to leave nothing of the holdout's batch behind, but on another "
            f"rank it does. That rank's message names the place."
        )
