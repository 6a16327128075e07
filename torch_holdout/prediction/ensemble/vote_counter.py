"""Count votes in one module without Python around it, so that it can be exported."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from torch_holdout.prediction.mechanisms.votes import vote_table


class VoteCounter(nn.Module):
    """Map inputs to how many members vote for each class, int64 [B, C].

    A member that returns NaN anywhere for a query votes for class 0.

    Example:
        >>> from torch_holdout.prediction.ensemble.members import stack_members
        >>> counter = VoteCounter(stack_members(lambda: nn.Linear(3, 4), 7, seed=0))
        >>> counter(torch.ones(2, 3)).sum(dim=1)
        tensor([7, 7])
    """

    def __init__(self, members: nn.Module) -> None:
        super().__init__()
        self.members = members
        # A graph of all members at once loses its free batch size in most other layers.
        owners = [module for module in members.modules() if [*module.parameters(recurse=False)]]
        self._loop = not all(isinstance(module, nn.Linear) for module in owners)
        self.train(members.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the counts."""
        state = {**dict(self.members.named_parameters()), **dict(self.members.named_buffers())}
        if self._loop:
            rows = {name: value.unbind(0) for name, value in state.items()}
            count = len(next(iter(rows.values())))
            outputs = torch.stack(
                [
                    functional_call(self.members, {n: row[k] for n, row in rows.items()}, (x,))
                    for k in range(count)
                ]
            )
        else:
            outputs = vmap(lambda one: functional_call(self.members, one, (x,)))(state)
        return vote_table(outputs)


Votes = VoteCounter  # what pickles of version 0.1.0 name it
