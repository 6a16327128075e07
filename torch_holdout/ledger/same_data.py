"""Whether two accounts have the same data: compared by sketches, inside the ledger only.

Data is refused under another name if more than 5 % of its records, or of the other account's, are
in both. Where a sketch holds a part of the records, the share must be beyond 5 % at an error rate
of 1 %: data without common records is never refused, data with at most 5 % in less than 1 % of
cases; 10 % is missed in less than 1 % of cases if 1,000 records are compared. Records that repeat
within both datasets (tables of a few categories) meet again by chance: twice the smaller share of
repeats is tolerated on top.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._fingerprints.data import BY_VALUE, DataFingerprint, KeyedData, percent
from torch_holdout._fingerprints.sketch import RANGE, Common, Sketch
from torch_holdout.bounds.single_query import binary_kl
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger.cuts import cut_difference, require_same_cut, store_cut
from torch_holdout.ledger.schema import keys, sketches
from torch_holdout.ledger.statements import change

SPLIT_ONCE = (
    "If every run or trial splits the data anew: split once, outside the objective, with a fixed "
    "generator seed, and give every trial the same holdout"
)
_TOLERATED = 0.05
_ERROR_RATE = 0.01


@final
@dataclass(frozen=True)
class KnownData:
    """What an account knows about some records.

    Attributes:
        registered: Whether the account was made with a fingerprint of its data.
        common: How many of them are in the account's sketch; None if it has no sketch.
    """

    registered: bool
    common: Common | None


def ledger_key(connection: sa.Connection) -> bytes:
    """Return the secret that fingerprints are kept under."""
    secret = sa.select(keys.c.secret).where(keys.c.purpose == "fingerprint")
    return bytes(connection.execute(secret).scalar_one())


def keyed_data(connection: sa.Connection, fingerprint: DataFingerprint | None) -> KeyedData | None:
    """Return the fingerprint as the ledger keeps it."""
    return None if fingerprint is None else fingerprint.keyed(ledger_key(connection))


def stored_sketch(connection: sa.Connection, account: str) -> Sketch | None:
    """Read an account's sketch, if it has one."""
    columns = (sketches.c.size, sketches.c.bound, sketches.c.hashes)
    row = connection.execute(sa.select(*columns).where(sketches.c.account == account)).one_or_none()
    return None if row is None else _read(*row)


def has_sketch(connection: sa.Connection, account: str) -> bool:
    """Whether an account has a sketch of its data."""
    own = sa.select(sketches.c.size).where(sketches.c.account == account)
    return connection.execute(own).first() is not None


def store_sketch(connection: sa.Connection, account: str, sketch: Sketch) -> None:
    """Write an account's sketch."""
    own = {"size": sketch.size, "bound": sketch.bound, "hashes": sketch.content()}
    change(connection, sketches.insert().values(account=account, **own))


def store_data(connection: sa.Connection, account: str, keyed: KeyedData | None) -> None:
    """Write what a new account knows of its data: a sketch, and the cut it is a part of."""
    if keyed is not None:
        store_sketch(connection, account, Sketch.of(keyed.hashes, keyed.size))
    if keyed is not None and keyed.cut is not None:
        store_cut(connection, account, keyed.cut)


def require_new_data(
    connection: sa.Connection, table: sa.Table, name: str, given: KeyedData
) -> None:
    """Raise if an account of the table has the given data already, or much of it.

    Also if it is a part of a dataset that was cut in another way for another account.
    """
    known = sa.select(table.c.name).where(
        table.c.fingerprint.in_([given.fingerprint, given.earlier])
    )
    twin = connection.execute(known).scalars().first()
    if twin is not None:
        raise _refilled(name, twin, "this data is already", "Open it by that name.")
    require_same_cut(connection, name, given.cut)
    overlaps = list(_overlaps(connection, table, given))
    if overlaps:
        _, twin, text = max(overlaps)
        raise _refilled(name, twin, text, "Open that one, with its own data, or take new records.")


def data_difference(connection: sa.Connection, row: Any, given: KeyedData | None) -> str | None:
    """Return how the given data differs from an account's own; None if it does not."""
    if given is None:
        return None
    if not row.fingerprint:
        return "fingerprint: it was created without one"
    other_cut = cut_difference(connection, row.account, given.cut)
    if row.fingerprint in (given.fingerprint, given.earlier):
        return other_cut
    differences = (other_cut, _other_records(connection, row, given))
    return "; ".join(filter(None, differences)) or None


def _other_records(connection: sa.Connection, row: Any, given: KeyedData) -> str | None:
    unlike = "fingerprint: the data is not the data it was created with"
    sketch = stored_sketch(connection, row.account)
    if sketch is None:  # made by version 0.1.0, and not opened with its own data since
        return unlike
    common = sketch.compared_with(given.hashes)
    if common.same and not row.fingerprint.startswith(BY_VALUE):
        return None  # cast since 0.1.0, which hashed number types too
    return f"{unlike}: {compared_share(common)} are in the account's data" + (
        f". {SPLIT_ONCE}" if common.both else ""
    )


def compared_share(common: Common) -> str:
    """Return how much of some data is in an account's, as the subject of a sentence."""
    about = "" if common.exact else "about "
    return (
        f"{about}{percent(common.both, common.given)} of its records ({common.both:,} of "
        f"{common.given:,} compared)"
    )


def _read(size: Any, bound: Any, hashes: Any) -> Sketch:
    try:
        if size > 0 and 0 < bound <= RANGE:
            return Sketch.stored(size, bound, bytes(hashes))
    except (TypeError, ValueError):  # edited
        pass
    raise LedgerError(
        "Expected an intact ledger, but the sketch of an account's data is damaged. It was not "
        "repaired, because a repair could refund budget. Restore the ledger from a backup."
    )


def _refilled(name: str, twin: str, text: str, advice: str) -> HoldoutMismatchError:
    return HoldoutMismatchError(
        f"Expected new data for the new name {name!r}, but {text} {twin!r}; another name "
        f"does not refill its budget. {advice} Nothing was charged."
    )


def _overlaps(
    connection: sa.Connection, table: sa.Table, given: KeyedData
) -> Iterator[tuple[float, str, str]]:
    columns = (table.c.name, sketches.c.size, sketches.c.bound, sketches.c.hashes)
    known = sa.select(*columns).join(sketches, sketches.c.account == table.c.account)
    repeats = 1 - len(given.hashes) / given.size
    for name, size, bound, hashes in connection.execute(known):
        sketch = _read(size, bound, hashes)
        common = sketch.compared_with(given.hashes)
        if much(common, tolerated=_TOLERATED + 2 * min(repeats, sketch.repeats)):
            text = f"{compared_share(common)} are in"
            yield max(common.share_of_given, common.share_of_kept), name, text


def much(common: Common, *, tolerated: float) -> bool:
    """Whether more than a tolerated share of either dataset is in the other one."""
    return any(
        _beyond(common.both, records, tolerated, exact=common.exact)
        for records in (common.given, common.kept)
    )


def _beyond(both: int, records: int, tolerated: float, *, exact: bool) -> bool:
    if both <= tolerated * records:
        return False
    # Chernoff's bound, which also holds for draws without replacement.
    return exact or records * binary_kl(both / records, tolerated) >= math.log(1 / _ERROR_RATE)
