"""Compares what an account was made with and what it is opened with."""

from collections.abc import Iterator
from typing import Any

from torch_holdout.errors import HoldoutMismatchError
from torch_holdout.ledger.registration import StoredRegistration, StoredStatistic


def merged(
    row: Any,
    stored: StoredRegistration,
    given: StoredRegistration,
    keyed: str | None,
    *,
    lenient: bool,
) -> StoredRegistration:
    """Return the stored registration with the statistics that were added, or refuse.

    Args:
        row: The account's row.
        stored: Its registration.
        given: What it is opened with.
        keyed: The keyed fingerprint of the data it is opened with, or None.
        lenient: Allow statistics that are stored and not given.
    """
    known = {_part(statistic, row.queries) for statistic in stored.statistics.values()}
    added = {
        name: statistic
        for name, statistic in given.statistics.items()
        if name not in stored.statistics and _part(statistic, row.queries) in known
    }
    if added and row.queries and stored.fixes_statistics():
        raise HoldoutMismatchError(
            f"Expected the statistics of holdout {row.name!r} to be fixed before its first query, "
            f"but {list(added)} would be new: a Ladder's certificate counts on that. Give them a "
            f"holdout of their own. Nothing was charged."
        )
    whole = stored.with_statistics(added)
    wanted = given.content
    if lenient:
        wanted = wanted | {"statistics": whole.content["statistics"] | wanted["statistics"]}
    require_same(row, whole.content, wanted, keyed)
    return whole


def _part(statistic: StoredStatistic, queries: int) -> object:
    # Other cuts into as many units have a certificate of another theorem: not after an answer.
    return statistic.cut if queries else statistic.units


def require_same(
    row: Any, stored: dict[str, Any], given: dict[str, Any], keyed: str | None
) -> None:
    """Raise unless an account is opened with its own parameters and data."""
    differences = [
        f"{path}: stored {old}, given {new}" for path, old, new in _differences(stored, given)
    ]
    if keyed is not None and row.fingerprint != keyed:
        differences.append(
            "fingerprint: the data is not the data it was made with"
            if row.fingerprint
            else "fingerprint: it was made without one"
        )
    if differences:
        raise HoldoutMismatchError(
            f"Expected {row.name!r} to be opened with the parameters of its making, but: "
            + "; ".join(differences)
            + ". Use the stored ones, or give new data a new name. Nothing was charged."
        )


def _differences(
    stored: dict[str, Any], given: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key in [*stored, *(key for key in given if key not in stored)]:
        old, new = stored.get(key, "nothing"), given.get(key, "nothing")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new
