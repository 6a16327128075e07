"""The first batch of a guarded run, shown to user code as marked tensors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from torch_holdout.errors import UnguardedLogError
from torch_holdout.training.advice import not_public, refusal
from torch_holdout.training.looking import holds_marks, look_at
from torch_holdout.training.marking import Finding
from torch_holdout.training.pooled import require_own_values

if TYPE_CHECKING:
    from torch_holdout.training.guard import HoldoutGuardHooks


@final
class FirstBatches:
    """Looks at what user code does with the holdout's data, before that can matter.

    Once in the sanity check, and once in the first pass of a run: code may skip the sanity check.
    """

    def __init__(self) -> None:
        self._shown: set[tuple[bool, str]] = set()  # in a sanity check or not, what
        self.looking = False

    def show(
        self,
        guard: "HoldoutGuardHooks",
        name: str,
        run: Callable[[Any], Any],
        batch: Any,
        trainer: Any,
        *,
        used: bool,
    ) -> Any:
        """Run code on a first batch, marked if it is due; raise or warn if it kept something.

        ``used`` says whether the result counts: then it is computed once more, unmarked.
        """
        if (trainer.sanity_checking, name) in self._shown:
            return run(batch)
        self._shown.add((trainer.sanity_checking, name))
        connector = getattr(trainer, "_logger_connector", None)
        owners = [*trainer.lightning_module.modules(), *trainer.callbacks, connector]

        def refuse(findings: list[Finding]) -> None:
            findings = not_public(findings, guard.public)
            if findings and guard.unguarded == "raise":
                raise UnguardedLogError(refusal(name, findings))
            if findings:
                guard._warn_once(refusal(name, findings))

        def excuse(trouble: str) -> None:
            guard._warn_once(f"what `{name}` keeps could not be checked: {trouble}")

        def run_seen(batch: Any) -> Any:
            self.looking = holds_marks(batch)
            try:
                return run(batch)
            finally:
                self.looking = False

        result = look_at(run_seen, batch, owners, repeat=used, refuse=refuse, excuse=excuse)
        if name.endswith("_step"):
            require_own_values(run, batch, result, owners)
        return result
