"""The neighbouring relation: which change of the records is protected."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, final

from torch_holdout._shared.checks import require_choice, require_whole

Relation = Literal["replace-one", "add-remove"]
Unit = Literal["record", "user"]


@final
@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The neighbouring relation behind an epsilon.

    Attributes:
        relation: ``"replace-one"`` (the number of records is public) or ``"add-remove"``.
        unit: What is replaced, added or removed: one record, or all records of a user.
        members_changed: How many members of an ensemble one such change can touch; a pure epsilon
            grows with it, a rho with its square.

    Example:
        >>> print(Neighbours(relation="replace-one", unit="record"))
        replacing one record (one member changes)
    """

    relation: Relation
    unit: Unit
    members_changed: int = 1

    def __post_init__(self) -> None:
        require_choice("relation", self.relation, ("replace-one", "add-remove"))
        require_choice("unit", self.unit, ("record", "user"))
        require_whole("members_changed", self.members_changed, 1, 2)

    def identity(self) -> dict[str, Any]:
        """Return the public facts that a ledger and a checkpoint store."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "replacing" if self.relation == "replace-one" else "adding or removing"
        touched = "one member changes" if self.members_changed == 1 else "two members change"
        return f"{verb} one {self.unit} ({touched})"
