"""What a board tells about a submission; registered, and compared when it is opened again."""

from dataclasses import dataclass
from typing import Any, Literal, final

from torch_holdout._shared.checks import require_choice, require_number
from torch_holdout.errors import InvalidArgumentError

Mode = Literal["ladder", "record", "gate", "sealed"]
MODES: tuple[Mode, ...] = ("ladder", "record", "gate", "sealed")


@final
@dataclass(frozen=True, kw_only=True)
class Feedback:
    """What each submission is told before closing.

    Args:
        mode: ``"ladder"``: the analyst's own best value, when it improves by a step; ``"record"``:
            the best of all analysts; ``"gate"``: keep or revert, against the analyst's own
            incumbent; ``"sealed"``: nothing.
        baseline: The public value to beat, of the first statistic, in user units; for ladder and
            record.
        step: The smallest improvement that is told, normalised; for ladder and record.
        rule: For the gate: ``"certified"`` or ``"margin"``.
        margin: For ``"margin"``: how much better a challenger must be, in user units.

    Example:
        >>> Feedback(mode="ladder", baseline=0.55, step=0.01).shows_values
        True
    """

    mode: Mode
    baseline: float | None = None
    step: float | None = None
    rule: Literal["certified", "margin"] | None = None
    margin: float | None = None

    def __post_init__(self) -> None:
        require_choice("mode", self.mode, MODES)
        self._require("baseline", self.shows_values)
        self._require("step", self.shows_values)
        self._require("rule", self.mode == "gate")
        if self.rule is not None:
            require_choice("rule", self.rule, ("certified", "margin"))
        self._require("margin", self.rule == "margin")
        for name in ("baseline", "step", "margin"):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value)
                object.__setattr__(self, name, float(value))
        if self.step is not None and not 0 < self.step < 1:
            raise InvalidArgumentError(
                f"Expected `step` between 0 and 1, in normalised units, but got {self.step!r}."
            )

    @property
    def shows_values(self) -> bool:
        """Whether values are told, and with them the budget is spent."""
        return self.mode in ("ladder", "record")

    def identity(self) -> dict[str, Any]:
        """Return what the ledger stores and compares."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return {"kind": "board", **known}

    @classmethod
    def of_identity(cls, identity: dict[str, Any]) -> "Feedback":
        """Read a stored identity."""
        return cls(**{name: value for name, value in identity.items() if name != "kind"})

    def _require(self, name: str, wanted: bool) -> None:
        given = getattr(self, name) is not None
        if given != wanted:
            known = f"mode={self.mode!r}" if self.rule is None else f"rule={self.rule!r}"
            raise InvalidArgumentError(
                f"Expected {'a' if wanted else 'no'} `{name}` with {known}, but got "
                f"{getattr(self, name)!r}."
            )
