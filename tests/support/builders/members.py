"""Members of an ensemble without training: each is a linear layer with weights from a seed."""

import torch
from torch import nn
from torch_holdout.prediction.mechanisms.base import OUT_OF_BUDGET, Voters
from torch_holdout.prediction.neighbours import Neighbours


class Members(nn.Module, Voters):
    def __init__(self, num_parts=20, num_outputs=3, features=4, seed=0, **neighbours):
        super().__init__()
        self.num_outputs = num_outputs
        generator = torch.Generator().manual_seed(seed)
        shape = (num_parts, features, num_outputs)
        self.weight = nn.Parameter(torch.randn(shape, generator=generator))
        self._neighbours = Neighbours(**{"relation": "replace-one", "unit": "record", **neighbours})

    @property
    def num_parts(self):
        return len(self.weight)

    @property
    def neighbours(self):
        return self._neighbours

    def public_outputs(self, inputs):
        return torch.einsum("bf,fc->bc", inputs, torch.zeros_like(self.weight[0]))

    def output_chunks(self, inputs):
        for weight in self.weight.split(8):
            yield torch.einsum("bf,mfc->mbc", inputs, weight)

    def identity(self):
        return {"kind": "toy"}


def queries(count, features=4, seed=1):
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed))


def abstained(labels):
    return bool((labels == OUT_OF_BUDGET).all())
