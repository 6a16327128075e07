"""One call of the door: what is asked, about which sums, with which guesses."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout.ledger.records import Debit
from torch_holdout.statistics import SealedSums, Statistic

Role = Literal["holdout", "guess"]
Guesses = Mapping[str, float | SealedSums]


@dataclass(frozen=True, repr=False)
class Question:
    """The arguments of ``release_all``, and what the answer costs another account."""

    sums: Mapping[str, SealedSums]
    query: str | WeightsFingerprint
    guesses: Guesses
    fresh: bool
    debit: Debit | None = None

    @property
    def world(self) -> int:
        """The number of ranks that ask together."""
        sealed = [own for own in self.sums.values() if isinstance(own, SealedSums)]
        return max((own.world for own in sealed), default=1)

    @property
    def recognised(self) -> bool:
        """Whether both looks at the weights saw the same structure."""
        return isinstance(self.query, str) or bool(self.query.structure)

    def text(self, lanes: list[int]) -> str:
        """Name the query, given the weights' lanes as read from the device."""
        return self.query if isinstance(self.query, str) else self.query.query(lanes)


def query_key(statistic: Statistic, query: str) -> str:
    """Return what the ledger knows a query of a statistic by."""
    identity = f"{sorted(statistic.identity().items())}|{statistic.source()}|{query}"
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()
