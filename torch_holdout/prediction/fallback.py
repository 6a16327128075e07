"""A public model that answers when the budget has ended."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torch_holdout.errors import InvalidArgumentError


def fallback_answers(model: Callable[[Any], Tensor], inputs: Any, *, labels: bool) -> Tensor:
    """Ask the public model, in eval mode; what it raises is public too.

    Example:
        >>> fallback_answers(lambda x: x.flip(1), torch.tensor([[0.0, 2.0]]), labels=True)
        tensor([0])
    """
    if isinstance(model, nn.Module):
        model.eval()
    try:
        given = model(inputs)
        if not labels:
            return given.to(torch.float64)
        return given.argmax(dim=-1) if given.is_floating_point() else given.to(torch.int64)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    raise InvalidArgumentError(
        f"Expected `fallback` to take the inputs, but it raised {failure}. Nothing was charged."
    )
