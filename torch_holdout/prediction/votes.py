"""Vote counts as one module without Python around it, so that it can be exported."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from torch_holdout.errors import InvalidArgumentError


class Votes(nn.Module):
    """Map inputs to how many members vote for each class, int64 [B, C].

    A member that returns NaN anywhere for a query votes for class 0.

    Example:
        >>> from torch_holdout.prediction.members import stack_members
        >>> votes = Votes(stack_members(lambda: nn.Linear(3, 4), 7, seed=0))
        >>> votes(torch.ones(2, 3)).sum(dim=1)
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
        return count_votes(outputs)


def count_votes(outputs: Tensor) -> Tensor:
    """Return the votes [B, C] of outputs [m, B, C].

    Example:
        >>> count_votes(torch.tensor([[[0.1, 0.9]], [[0.3, float("nan")]], [[0.0, 1.0]]]))
        tensor([[1, 2]])
    """
    if outputs.ndim != 3:
        raise InvalidArgumentError(
            f"Expected one score for each class, [members, queries, classes], but got "
            f"{outputs.ndim} dimensions."
        )
    choices = outputs.argmax(dim=-1).masked_fill(outputs.isnan().any(dim=-1), 0)
    counts = torch.zeros(outputs.shape[1:], dtype=torch.int64, device=outputs.device)
    return counts.scatter_add(1, choices.T, torch.ones_like(choices.T))
