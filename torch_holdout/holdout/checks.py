"""One question to the door, and the checks of its sums, guesses and estimation sets."""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import (
    require_flag,
    require_instance,
    require_number,
    require_text,
)
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError, HoldoutWarning, InvalidArgumentError
from torch_holdout.holdout.columns import require_sendable
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger.records import Debit
from torch_holdout.ledger.registration import before_zero_one
from torch_holdout.mechanisms import Mechanism
from torch_holdout.statistics import SealedSums, Statistic

Role = Literal["holdout", "guess"]
Guesses = Mapping[str, float | SealedSums]
_LONGEST_STEP = 60


def guesses_for(sums: Mapping[str, SealedSums], guesses: Guesses | None) -> Guesses:
    """Return the guesses that belong to some sums; raise unless both are given by name."""
    require_instance("sums", sums, Mapping)
    if guesses is None:
        return {}
    require_instance("guesses", guesses, Mapping)
    return {name: guess for name, guess in guesses.items() if name in sums}


def query_text(query: str | WeightsFingerprint) -> str:
    """Return a query as text; raise unless it is one."""
    require_instance("query", query, str | WeightsFingerprint)
    return query if isinstance(query, str) else query.query(query.lanes.tolist())


@dataclass(frozen=True, repr=False)
class Question:
    """What is asked about one pass: by ``release_all``, or in a run."""

    sums: Mapping[str, SealedSums]
    query: str | WeightsFingerprint
    guesses: Guesses
    fresh: bool
    debit: Debit | None = None
    step: str | None = None

    @property
    def world(self) -> int:
        """The number of ranks that ask together."""
        sealed = [own for own in self.sums.values() if isinstance(own, SealedSums)]
        return max((own.world for own in sealed), default=1)

    def problem(self, registration: Registration, address: str) -> HoldoutError | None:
        """Return why this holdout does not take the sums, guesses or query; None if it does.

        Not raised yet: a rank with a problem must still tell the others.
        """
        try:
            require_flag("fresh", self.fresh)
            for name, own in self.sums.items():
                _require_sums(registration, owner_of(registration, address, name, "holdout"), own)
                guess = self.guesses.get(name)
                if guess is not None and not registration.mechanism.wants_guess():
                    raise InvalidArgumentError(
                        "Expected no guess: this mechanism brings its own. Use guess='train' to "
                        "compare with a value of yours."
                    )
                if isinstance(guess, SealedSums):
                    _require_sums(
                        registration, owner_of(registration, address, name, "guess"), guess
                    )
                elif guess is not None:
                    require_number("guess", guess)
            if not isinstance(self.query, WeightsFingerprint | str):
                raise InvalidArgumentError(
                    f"Expected `query` to be text or a weights fingerprint, but got "
                    f"{type(self.query).__name__}."
                )
            if self.step is not None:
                _require_step(self.step)
            require_sendable([*self.sums.values(), *self.guesses.values()], self.world)
        except HoldoutError as error:
            return error
        return None


def _require_step(step: str) -> None:
    require_text("step", step)
    if len(step) > _LONGEST_STEP:
        raise InvalidArgumentError(
            f"Expected `step` of at most {_LONGEST_STEP} characters, but got {len(step)}."
        )


def owner_of(registration: Registration, address: str, name: str, role: Role) -> tuple[str, ...]:
    """Return the mark of the sums of one statistic and role; no other sums are taken for them."""
    return (address, registration.name, name, role)


def require_allowed(mechanism: Mechanism, guessed: bool, fresh: bool) -> None:
    """Raise if the mechanism needs a guess that is missing, or cannot answer afresh."""
    if mechanism.wants_guess() and not guessed:
        raise InvalidArgumentError(
            "Expected a guess with every query, because the mechanism compares with the training "
            "value. Pass guess= (or call metric.update_train). Nothing was charged."
        )
    if fresh and not mechanism.allows_fresh():
        raise InvalidArgumentError(
            "Expected fresh=False: this mechanism publishes only improvements, so it cannot "
            "answer a query again. Nothing was charged."
        )


def estimation_set_after(releases: int, mechanism: Mechanism) -> int:
    """Return which estimation set is current after that many releases, counted from 0."""
    sets = mechanism.estimation_sets
    return 0 if sets is None else min(releases, sets - 1)


def require_current_sets(
    guesses: Guesses, releases: int, mechanism: Mechanism, *, answered: int
) -> None:
    """Raise if a guess comes from an estimation set that has been discarded.

    ``releases`` are those of the locked account, without this call's own.
    """
    if mechanism.estimation_sets is None:
        return
    current = estimation_set_after(releases, mechanism)
    others = f" for it; {counted(answered, 'statistic')} of this call had been answered before"
    for own in guesses.values():
        if isinstance(own, SealedSums) and own.owner[4] != str(current):
            raise HoldoutError(
                f"Expected the guess to come from estimation set {current}, but set "
                f"{own.owner[4]} has been discarded meanwhile. Evaluate the current set "
                f"(holdout.estimation_set()) and ask again; nothing was charged"
                f"{others if answered else ''}."
            )


def require_fingerprint(fingerprint: DataFingerprint | None, size: int) -> None:
    """Raise unless a dataset's fingerprint, if there is one, is of ``size`` examples."""
    if fingerprint is not None:
        require_instance("fingerprint", fingerprint, DataFingerprint)
        if fingerprint.size != size:
            raise InvalidArgumentError(
                f"Expected the fingerprinted dataset to have size={size} examples, but it has "
                f"{fingerprint.size}."
            )


def warn_of_fewer_units(registration: Registration) -> None:
    """Warn if a plan has counted more independent examples than a statistic has units.

    The account's own certificate counts units; only what the plan has said beforehand does not.
    """
    planned, units = registration.size, {n: registration.units(n) for n in registration.statistics}
    fewer = [name for name in units if units[name] < planned]
    if fewer:
        fewest = min(units.values())
        warnings.warn(
            f"Holdout {registration.name!r}: the plan counts {planned:,} independent examples, but "
            f"{fewer} have fewer units (the fewest {fewest:,}), so less is certified than the plan "
            f"says; holdout.certificate() has it. To plan with units, write p = th.plan(size="
            f"{fewest}, ...) and ReusableHoldout(..., size={planned}, mechanism=p.mechanism, "
            f"budget=p.budget).",
            HoldoutWarning,
            stacklevel=3,
        )


def _require_sums(registration: Registration, owner: tuple[str, ...], sums: SealedSums) -> None:
    name, role = owner[2:4]
    statistic = registration.statistic(name)
    if not isinstance(sums, SealedSums):
        raise InvalidArgumentError(
            f"Expected the sealed sums of `holdout.accumulator({name!r})`, but got "
            f"{type(sums).__name__}. Write sums = holdout.accumulator({name!r}) and "
            f"sums.update(values), with a value for each example."
        )
    same = sums.identity == statistic.identity()
    if sums.owner[:4] != owner or not same or sums.resolution != registration.levels:
        raise InvalidArgumentError(
            f"Expected sums made by `holdout.accumulator({name!r}, role={role!r})` of this "
            f"holdout, but these belong to another holdout, statistic or role."
        )
    _, world = rank_and_world()
    if sums.world not in (1, world):
        raise InvalidArgumentError(
            f"Expected a process group of {sums.world} ranks, for which these sums were made, but "
            f"there are {world}."
        )


def other_rank_failed() -> HoldoutError:
    """Return the error of a rank that could ask, where another could not."""
    return HoldoutError("Another rank could not ask; nothing was released or charged.")


def query_key(statistic: Statistic, query: str) -> str:
    """Return the key under which the ledger finds a query of a statistic again."""
    identity = sorted(before_zero_one(statistic.identity()).items())
    text = f"{identity}|{statistic.source()}|{query}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
