"""What a board tells of a submission; registered, and compared when it is opened again."""

from dataclasses import dataclass
from typing import Literal, final

Mode = Literal["ladder", "record", "gate", "sealed"]


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
    """

    mode: Mode
    baseline: float | None = None
    step: float | None = None
    rule: Literal["certified", "margin"] | None = None
    margin: float | None = None
