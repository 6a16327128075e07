"""Cut a dataset once: a part that may be watched, a part for one number, and the rest."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from torch_holdout._fingerprints.cut import (
    PARTS,
    Cut,
    Owners,
    Part,
    Whole,
    read_all,
    require_apart,
)
from torch_holdout._fingerprints.data import SizedDataset, checked_size
from torch_holdout._fingerprints.hashing import UnknownContentError
from torch_holdout._fingerprints.records import Hashes
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_flag,
    require_whole,
)
from torch_holdout._shared.labels import Labels, numbered_labels
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError

_BY_RECORDS = "records"


def split(
    dataset: SizedDataset,
    *,
    display: float | None = None,
    vault: float | None = None,
    seed: int = 0,
    groups: Any = None,
    check_duplicates: bool = True,
) -> tuple[Part, ...]:
    """Cut a dataset; return the parts asked for in the order display, vault, rest.

    - The **display** may be watched: plain values, ``EarlyStopping`` and ``ModelCheckpoint`` on
      it cost nothing, and stop runs whose holdout stays silent.
    - The **vault** is for one final number. It needs no class of its own: it is a holdout with
      ``mechanism=th.Sealed(evaluations=1)`` and ``budget=1`` on that part.
    - The **rest** is the holdout (or, if a training set was cut, the training set).

    Every part is a ``torch.utils.data.Subset`` with the attribute ``cut``. A certificate counts on
    a holdout that nobody has watched, so a cut is made once: ``fingerprint=th.fingerprint(part)``
    registers it with the account, and parts of the same dataset under another cut are refused on
    that ledger. Seed, shares, groups and the order of the dataset decide the cut, and nothing else:
    it is the same in every process. Without a fingerprint another cut is not detected; neither is
    one of a dataset with some records more or fewer. A display that is cut from the training set
    needs no registration.

    Args:
        dataset: A dataset with a length and integer indexing.
        display: Its share, between 0 and 1; the number of examples is rounded.
        vault: Its share, between 0 and 1.
        seed: What decides the cut, with the shares and the groups.
        groups: One label for each example (a sequence, an array or a tensor), where examples are
            not independent of each other: all examples of a patient or a document go to one part,
            and the shares are met as nearly as the groups allow. ``"records"`` makes a group of
            equal records.
        check_duplicates: Whether all records are read and compared: a record that is in two parts
            is refused. With False nothing is read, and ``th.fingerprint(part)`` compares them.

    Raises:
        InvalidArgumentError: A share leaves a part empty, groups cannot be divided, a record is in
            two parts, or the dataset is a part already.

    Example:
        >>> import torch, torch_holdout as th
        >>> val_set = torch.utils.data.TensorDataset(torch.arange(1000.0))
        >>> display, sealed = th.split(val_set, display=0.2, seed=0)
        >>> len(display), len(sealed), str(sealed.cut)
        (200, 800, 'display 0.2, seed 0, part rest')
        >>> same = {"statistics": {"val_acc": th.ZeroOne()}, "mechanism": th.Ladder(step=0.1)}
        >>> holdout = th.ReusableHoldout.open(
        ...     "memory://cut", name="val", size=800, budget=5, fingerprint=th.fingerprint(sealed),
        ...     **same)
        >>> _, vault, _ = th.split(val_set, display=0.2, vault=0.01, seed=1)  # after watching
        >>> th.ReusableHoldout.open(
        ...     "memory://cut", name="final", size=10, budget=1,
        ...     fingerprint=th.fingerprint(vault), **same)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutMismatchError: Expected a part of the cut that 'val' was created
        with (display 0.2, seed 0, part rest), but got one of another cut of the same data ...
    """
    require_flag("check_duplicates", check_duplicates)
    seed = plain_whole(seed)
    require_whole("seed", seed, 0, 2**63 - 1)
    shares = _shares(display=display, vault=vault)
    size = _whole_size(dataset)
    wanted = _wanted(shares, size)
    by_records = isinstance(groups, str) and groups == _BY_RECORDS
    labels = np.arange(size)
    if groups is not None and not by_records:
        labels, _ = numbered_labels(groups, size, otherwise=", or 'records'")
    hashes = _hashes(dataset, size) if check_duplicates or by_records else None
    if by_records:
        labels = _equal_records(hashes)
    owners = _owners(labels, wanted, seed)
    if hashes is not None:
        require_apart(hashes, owners)
    together = None if groups is None else _BY_RECORDS if by_records else "groups"
    cut = Cut(
        part=PARTS[-1],
        display=shares.get("display"),
        vault=shares.get("vault"),
        seed=seed,
        groups=together,
        whole=Whole(owners, hashes),
    )
    order = fixed_permutation(size, seed).numpy()
    return tuple(
        Part(
            dataset,
            order[owners[order] == PARTS.index(part)].tolist(),
            dataclasses.replace(cut, part=part),
        )
        for part in wanted
    )


def _shares(**given: float | None) -> dict[str, float]:
    for name, share in given.items():
        if share is not None:
            require_between(name, share, 0, 1, ends=False)
    shares = {name: float(share) for name, share in given.items() if share is not None}
    if not shares:
        raise InvalidArgumentError(
            "Expected `display` or `vault`, or both, as shares of the dataset, but got neither. "
            "Pass e.g. display=0.2."
        )
    if sum(shares.values()) >= 1:
        raise InvalidArgumentError(
            f"Expected shares that leave a rest, but {_written(shares)} are the whole dataset or "
            f"more. Choose smaller ones."
        )
    return shares


def _written(shares: Mapping[str, float]) -> str:
    return " and ".join(f"{name}={share:g}" for name, share in shares.items())


def _whole_size(dataset: Any) -> int:
    if isinstance(dataset, Part):
        raise InvalidArgumentError(
            "Expected a dataset that was not cut before, but got a part of one: an account "
            "registers one cut. Ask for all parts at once, e.g. th.split(dataset, display=0.2, "
            "vault=0.1); to cut a training part again, pass torch.utils.data.Subset(part, "
            "range(len(part)))."
        )
    return checked_size(dataset)


def _wanted(shares: Mapping[str, float], size: int) -> dict[str, int]:
    """Return how many examples each part should have; raise if one would have none."""
    wanted = {name: round(share * size) for name, share in shares.items()}
    wanted[PARTS[-1]] = size - sum(wanted.values())
    empty = [name for name, count in wanted.items() if count < 1]
    if empty:
        raise InvalidArgumentError(
            f"Expected at least one example in every part, but {_written(shares)} of "
            f"{counted(size, 'example')} leaves none for the {empty[0]}. Choose other shares."
        )
    return wanted


def _equal_records(hashes: Hashes | None) -> Labels:
    if hashes is None:
        raise InvalidArgumentError(
            "Expected records that can be compared, for groups='records'. Pass one label for each "
            "example instead."
        )
    return np.unique(hashes, return_inverse=True)[1].reshape(-1)


def _hashes(dataset: Any, size: int) -> Hashes | None:
    """Hash every record; None, with a warning, if they hold something that has no hash."""
    try:
        return read_all(dataset, size)
    except UnknownContentError as error:
        unknown = str(error)
    warnings.warn(
        f"The records hold a {unknown}, which cannot be compared: copies of a record in two parts "
        f"were not looked for, and th.fingerprint cannot register this cut. Wrap the dataset so "
        f"that it returns tensors, arrays, numbers and text, or pass check_duplicates=False.",
        HoldoutWarning,
        stacklevel=3,
    )
    return None


def _owners(labels: Labels, wanted: Mapping[str, int], seed: int) -> Owners:
    """Return the number of each example's part; a group's examples are in one.

    Groups come in the order of a permutation; each goes to the first part whose size it brings
    nearer to what was wanted, or to the rest.
    """
    sizes = np.bincount(labels).tolist()
    left = {PARTS.index(part): count for part, count in wanted.items() if part != PARTS[-1]}
    owners = np.full(len(sizes), PARTS.index(PARTS[-1]), dtype=np.int8)
    for group in fixed_permutation(len(sizes), seed).tolist():
        nearer = (part for part, missing in left.items() if sizes[group] < 2 * missing)
        if (part := next(nearer, None)) is not None:
            owners[group] = part
            left[part] -= sizes[group]
    of_examples: Owners = owners[labels]
    if len(sizes) < len(labels):
        _require_divided(of_examples, wanted, sizes)
    return of_examples


def _require_divided(owners: Owners, wanted: Mapping[str, int], sizes: list[int]) -> None:
    """Raise if groups leave a part empty; warn if they leave it far from its share."""
    counts = {part: int((owners == PARTS.index(part)).sum()) for part in wanted}
    largest = f"the largest of {counted(len(sizes), 'group')} has {max(sizes):,}"
    for part in (part for part, count in counts.items() if not count):
        raise InvalidArgumentError(
            f"Expected groups that can be divided among the parts, but none is left for the "
            f"{part}, which should have {wanted[part]:,} of {counted(len(owners), 'example')}: "
            f"{largest}. Use smaller groups, or other shares."
        )
    for part, count in counts.items():
        if abs(count - wanted[part]) > wanted[part] / 2:
            warnings.warn(
                f"The {part} has {counted(count, 'example')} instead of {wanted[part]:,}, because "
                f"groups stay together: {largest}.",
                HoldoutWarning,
                stacklevel=4,
            )
