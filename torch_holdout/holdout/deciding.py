"""One live answer: what the mechanism decides, as the ledger records it."""

from fractions import Fraction

from torch_holdout._noise.streams import NoiseSource
from torch_holdout.accounting.picos import steps_in_picos
from torch_holdout.errors import LedgerError
from torch_holdout.holdout.gathering import Reading
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger import Entry
from torch_holdout.ledger.holdouts import Account
from torch_holdout.mechanisms import Query, Release
from torch_holdout.mechanisms.rounds import to_levels


def decided(
    account: Account,
    registration: Registration,
    noise: NoiseSource,
    name: str,
    key: str,
    reading: Reading,
    fresh: bool,
) -> tuple[Entry, int | None]:
    """Return the answer to record, and the secret threshold to keep. Nothing is committed yet."""
    mechanism = registration.mechanism
    units, grid = registration.units(name), registration.grid_of(name)
    last = account.last_release(name)
    index = None if last is None else last.grid_index
    released = None if index is None else Release(index, grid)
    guess = mechanism.guess_for(name, released, reading.guess)
    if guess is not None and mechanism.grid_guess:
        guess = Fraction(to_levels(guess, grid), grid)
    decision = mechanism.decide(
        Query(
            total=reading.total,
            units=units,
            resolution=registration.levels,
            grid=grid,
            guess=guess,
            threshold=account.threshold(units),
            forced=fresh or guess is None,
            mode=registration.statistic(name).mode,
            noise=noise.stream(registration.name, account.queries + 1),
        )
    )
    value = guess if decision.index is None else Fraction(decision.index, grid)
    if value is None:
        raise LedgerError("The mechanism chose a guess but had none; nothing was charged.")
    steps = (decision.index is not None) + decision.opened
    entry = Entry(
        statistic=name,
        query=key,
        attempt=account.attempts(name, key) if fresh else 0,
        kind="guess" if decision.index is None else "release",
        grid_index=decision.index,
        value=registration.statistic(name).to_user(float(value)),
        compared=decision.compared,
        opened=decision.opened,
        units=units,
        charge=steps_in_picos(mechanism.charge_per_step(units), steps),
        seeded=noise.seeded,
    )
    return entry, decision.threshold
