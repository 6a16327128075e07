"""A rule without noise, so that tests see every vote of what a predictor answers."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_holdout.accounting import Pure
from torch_holdout.prediction.mechanisms.base import VoteMechanism


@dataclass(frozen=True, kw_only=True)
class Loud(VoteMechanism):
    """Answers with all votes of a query, written as one number."""

    kind: ClassVar[str] = "loud"

    def charge(self, setting):
        return Pure(1e-6)

    def answer(self, table, setting, uniforms):
        base = setting.num_parts + 1
        places = base ** torch.arange(table.shape[1], device=table.device)
        return (table * places).sum(dim=1)

    def sampler_error(self, setting):
        return 0.0
