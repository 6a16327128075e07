"""What an account knows about the records of a dataset; only counts leave the ledger."""

from torch_holdout._fingerprints.records import Hashes
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.ledger.same_data import KnownData


def has_fingerprint(holdout: ReusableHoldout) -> bool:
    """Whether the account was made with a fingerprint of its data."""
    return holdout._ledger.summary(holdout._attached()).fingerprinted


def is_open(holdout: ReusableHoldout) -> bool:
    """Whether the account was not closed: its values are not public yet."""
    return holdout._ledger.summary(holdout._attached()).closed == "open"


def known_data(holdout: ReusableHoldout, hashes: Hashes) -> KnownData:
    """Return how many of some records are among those of the holdout's account."""
    return holdout._ledger.known_data(holdout._attached(), hashes)


def learn_data(holdout: ReusableHoldout, hashes: Hashes) -> bool:
    """Let an account that knows no data keep a sketch of a dataset; false if it knows some."""
    return holdout._ledger.learn_data(holdout._attached(), hashes)
