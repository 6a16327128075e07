"""What runs, and questions about them, need of their holdout."""

from dataclasses import dataclass
from typing import final

from torch_holdout._noise.streams import NoiseSource
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger import Ledger


@final
@dataclass(frozen=True, repr=False)
class RunAccess:
    """What a run needs of its holdout."""

    registration: Registration
    ledger: Ledger
    account: str
    noise: NoiseSource
