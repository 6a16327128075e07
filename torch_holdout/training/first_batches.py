"""The first batch of a guarded run, shown to user code as marked tensors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from torch_holdout.errors import UnguardedLogError
from torch_holdout.training.advice import not_public, refusal
from torch_holdout.training.looking import look_at

if TYPE_CHECKING:
    from torch_holdout.training.guard import HoldoutGuardHooks


@final
class FirstBatches:
    """Looks at what user code does with the holdout's data, before that can matter.

    Once in the sanity check, and once in the first pass of a run: code may skip the sanity check.
    """

    def __init__(self) -> None:
        self._seen: set[bool] = set()  # True: in a sanity check
        self.looking = False

    def passed(self, trainer: Any) -> None:
        """Note that a pass has ended; the next ones of its kind are not looked at."""
        self._seen.add(trainer.sanity_checking)

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
        if trainer.sanity_checking in self._seen:
            return run(batch)
        owners = [*trainer.lightning_module.modules(), *trainer.callbacks]
        self.looking = True
        try:
            looked = look_at(run, batch, owners, repeat=used)
        finally:
            self.looking = False
        if looked.trouble:
            guard._warn_once(f"what `{name}` keeps could not be checked: {looked.trouble}")
        if findings := not_public(looked.findings, guard.public):
            message = refusal(name, findings)
            if guard.unguarded == "raise":
                raise UnguardedLogError(message)
            guard._warn_once(message)
        return looked.result
