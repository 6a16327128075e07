"""What a challenge says: keep or revert, and what that is worth."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.text import confidence_text
from torch_holdout.bounds.challenges import KEEP_FAILURE
from torch_holdout.ledger.challenges import Rule, StoredChallenge, challenges_of, query_mark
from torch_holdout.ledger.symbols import Symbol


@final
@dataclass(frozen=True, kw_only=True)
class Challenge:
    """Whether a challenger was kept in place of the incumbent; all that is ever said about it.

    Attributes:
        kept: True: it is the incumbent now. False: the old one stays. None: nothing was compared,
            because it was the first or the old one's values were lost; it is the incumbent now.
        number: Its number among the account's challenges, from 1.
        statistic: What was compared.
        query: The public id of the challenger.
        incumbent: The public id of the incumbent after it.
        rule: ``"certified"`` or ``"margin"``.
        margin: By how much it had to be better; None for ``"certified"``.
        price: What this says, in nats: whatever is evaluated later pays for it.
        run: The number of its run, whose interval is shown at closing.
        lost: Whether the old incumbent's values were lost.
        repeated: Whether this was asked before: then it is the same answer, free.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=400, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=1), budget=10)
        >>> places = torch.arange(400)
        >>> _ = holdout.challenge("val_acc", places >= 100, query="first weights")
        >>> second = holdout.challenge("val_acc", places >= 60, query="second weights")
        >>> isinstance(second, th.Challenge), second.kept, second.incumbent == second.query
        (True, True, True)
        >>> holdout.challenge("val_acc", places >= 58, query="third weights").kept
        False
    """

    kept: bool | None
    number: int
    statistic: str
    query: str
    incumbent: str
    rule: Rule
    margin: float | None
    price: float
    run: int
    lost: bool = False
    repeated: bool = False

    def __str__(self) -> str:
        again = "asked before; " if self.repeated else ""
        return f"challenge {self.number}, {self.statistic}: {again}{self._sentence()}"

    def _sentence(self) -> str:
        if self.lost:
            return (
                f"the values of the incumbent are lost, so {self.query} is the new incumbent "
                f"without a test; this does not count as a keep, and nothing was said"
            )
        if self.kept is None:
            return f"{self.query} is the first, so it is the incumbent; nothing was said"
        price = f"price {self.price:.2f} nats"
        if self.rule == "margin":
            by = f"by more than {self.margin:g}" if self.margin else "at all"
            bettered = "better" if self.kept else "not better"
            now = f"{self.incumbent} is the incumbent"
            return f"{bettered} {by} on this holdout, which claims nothing; {now}; {price}"
        if self.kept:
            confidence = confidence_text(KEEP_FAILURE)
            return (
                f"kept: {self.query} is better than the incumbent before it; with {confidence} "
                f"confidence no certified keep of this account is false; {price}"
            )
        return (
            f"reverted: {self.query} is not certified to be better than {self.incumbent}, which "
            f"does not say that it is worse; {price}"
        )


def challenge_of(stored: StoredChallenge, *, repeated: bool) -> Challenge:
    """Return what is said about a challenge."""
    return Challenge(
        kept=stored.kept,
        number=stored.number,
        statistic=stored.statistic,
        query=query_mark(stored.statistic, stored.query),
        incumbent=query_mark(stored.statistic, stored.incumbent),
        rule=stored.rule,
        margin=stored.margin if stored.rule == "margin" else None,
        price=stored.nats,
        run=stored.run,
        lost=stored.lost,
        repeated=repeated,
    )


def said_challenges(symbols: Iterable[Symbol]) -> tuple[Challenge, ...]:
    """Return what an account has said about its challenges, oldest first."""
    own = [symbol for symbol in symbols if symbol.kind == "challenge"]
    return tuple(challenge_of(stored, repeated=False) for stored in challenges_of(own))
