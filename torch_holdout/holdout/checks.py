"""What may be put to the door: sums and guesses of its own, and the data it was made for."""

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_instance, require_number
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.text import counted
from torch_holdout.errors import (
    HoldoutError,
    InvalidArgumentError,
    PartialPassError,
    WeightsChangedError,
)
from torch_holdout.holdout.question import Guesses, Question, Role
from torch_holdout.holdout.registration import Registration
from torch_holdout.mechanisms import Mechanism
from torch_holdout.statistics import SealedSums


def owner_of(registration: Registration, address: str, name: str, role: Role) -> tuple[str, ...]:
    """Name what sums belong to; no other sums are taken for them."""
    return (address, registration.name, name, role)


def problem_with(asked: Question, registration: Registration, address: str) -> HoldoutError | None:
    """Return why this holdout does not take the sums, guesses or query; None if it does.

    Not raised yet: a rank with a problem must still tell the others.
    """
    try:
        for name, own in asked.sums.items():
            require_sums(registration, owner_of(registration, address, name, "holdout"), own)
            if name in asked.guesses:
                owner = owner_of(registration, address, name, "guess")
                require_usable_guess(registration, owner, asked.guesses[name])
        if not isinstance(asked.query, WeightsFingerprint | str):
            raise InvalidArgumentError(
                f"Expected `query` to be text or a weights fingerprint, but got "
                f"{type(asked.query).__name__}."
            )
    except HoldoutError as error:
        return error
    return None


def require_sums(registration: Registration, owner: tuple[str, ...], sums: SealedSums) -> None:
    """Refuse sums of another holdout, statistic, role, resolution or process group."""
    name, role = owner[2:4]
    statistic = registration.statistic(name)
    if not isinstance(sums, SealedSums):
        raise InvalidArgumentError(
            f"Expected the sealed sums of `holdout.accumulator({name!r})`, but got "
            f"{type(sums).__name__}: a bare number has no declared bounds."
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


def require_usable_guess(
    registration: Registration, owner: tuple[str, ...], guess: float | SealedSums | None
) -> None:
    """Refuse a guess where the mechanism brings its own, and what is no guess."""
    if guess is None:
        return
    if not registration.mechanism.wants_guess():
        raise InvalidArgumentError(
            "Expected no guess: this mechanism brings its own. Use guess='train' to compare with a "
            "value of yours."
        )
    if isinstance(guess, SealedSums):
        require_sums(registration, owner, guess)
    else:
        require_number("guess", guess)


def require_allowed(mechanism: Mechanism, *, guessed: bool, fresh: bool) -> None:
    """Raise if the mechanism needs a guess that is missing, or cannot answer afresh."""
    if mechanism.wants_guess() and not guessed:
        raise InvalidArgumentError(
            "Expected a guess with every query, because the mechanism compares with the "
            "training value. Pass guess= (or call metric.update_train)."
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

    Args:
        guesses: All guesses of a call, by statistic.
        releases: Those of the locked account, without this call's own.
        mechanism: What says how many sets there are.
        answered: How many statistics this call has answered before.
    """
    if mechanism.estimation_sets is None:
        return
    current = estimation_set_after(releases, mechanism)
    others = f" for it; {counted(answered, 'statistic')} of this call had been answered before"
    charged = f"nothing was charged{others if answered else ''}"
    for own in guesses.values():
        if isinstance(own, SealedSums) and own.owner[4] != str(current):
            raise HoldoutError(
                f"Expected the guess to come from estimation set {current}, but set "
                f"{own.owner[4]} has been discarded meanwhile. Evaluate the current set "
                f"(holdout.estimation_set()) and ask again; {charged}."
            )


def checked_fingerprint(fingerprint: DataFingerprint | None, size: int) -> DataFingerprint | None:
    """Return the data's fingerprint, or refuse one of another size."""
    if fingerprint is not None:
        require_instance("fingerprint", fingerprint, DataFingerprint)
        if fingerprint.size != size:
            raise InvalidArgumentError(
                f"Expected the fingerprinted dataset to have size={size} examples, but it has "
                f"{fingerprint.size}."
            )
    return fingerprint


def require_whole_pass(
    registration: Registration, seen: int, *, complete: bool, steady: bool
) -> None:
    """Refuse a part of the holdout, an example twice, and weights that changed on the way."""
    if not complete:
        raise PartialPassError(
            f"Expected a pass over all {registration.size} examples of holdout "
            f"{registration.name!r}, each once, but got {seen}. Nothing was released or charged. "
            f"Use the whole holdout without drop_last, and a new accumulator (or reset()) for "
            f"every pass."
        )
    if not steady:
        raise WeightsChangedError(
            "Expected the same weights and buffers throughout the pass and on every rank, but "
            "they changed while the holdout was read, or the ranks have different ones. Call "
            "model.eval() first and do not train inside the pass; where a strategy does not share "
            "BatchNorm's running statistics, set sync_batchnorm=True. Nothing was released or "
            "charged."
        )
