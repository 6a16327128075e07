"""Optimizers that keep the members of a stacked module apart, and their gradients' norms."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torch_holdout._noise.fixed import normal_numbers
from torch_holdout.errors import HoldoutError, InvalidArgumentError

OptimizerFactory = Callable[[Any], Optimizer]
_SHAPES = ((3, 4, 5), (3, 4), (3, 130, 129))  # the last is large enough to be factored
_SCALES = (1.0, 1e-8, 1e4, 0.0, 1e30, 1e-3, 1.0, 1e12, 1e-20, 1e2, 1e38, 1.0)
_CHANGED = 1


def build_optimizer(factory: OptimizerFactory, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimizer of stacked parameters, fused where the user left that open.

    Example:
        >>> weights = [nn.Parameter(torch.zeros(3, 4))]
        >>> build_optimizer(partial(torch.optim.Adam, lr=0.1), weights).defaults["fused"]
        True
    """
    parameters = list(parameters)
    if _leaves_fused_open(factory):
        try:
            return _checked(partial(factory, fused=True)(parameters))  # type: ignore[call-arg]
        except (RuntimeError, TypeError, ValueError):
            pass  # not on this device, or not together with another option
    return _checked(factory(parameters))


def require_apart(factory: OptimizerFactory, parameters: Iterable[Tensor] = ()) -> None:
    """Raise if one member's gradients move another member under an optimizer.

    Nothing is known by name: two small stacks, in which one member's gradients differ, are trained
    for a few steps, and the other members must stay equal bit for bit.

    Of ``parameters`` only the shapes are read, for a factory that needs as many as there are.

    Example:
        >>> require_apart(partial(torch.optim.Adam, lr=0.1))
        >>> require_apart(torch.optim.LBFGS)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected an optimizer ... without a closure ...
    """
    alike = [(3, *(min(size, 4) for size in p.shape[1:])) for p in parameters]
    failure = ""
    for shapes in (_SHAPES, alike):
        try:
            name, one = _trained(factory, shapes, changed=False)
            _, other = _trained(factory, shapes, changed=True)
        except HoldoutError:
            raise
        except Exception as error:
            failure = failure or f"{type(error).__name__}: {error}"
            continue
        _require_equal(name, one, other)
        return
    raise InvalidArgumentError(
        f"Expected an optimizer that steps without a closure over parameters of any shape, but on "
        f"stacked parameters it raised {failure}. Use e.g. SGD, Adam or AdamW."
    )


def clip_member_norms(parameters: Iterable[Tensor], largest: float) -> None:
    """Scale each member's gradients down to a norm, over its own parameters only, in place.

    Example:
        >>> weights = nn.Parameter(torch.zeros(2, 2))
        >>> weights.grad = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> clip_member_norms([weights], 1.0)
        >>> weights.grad.norm(dim=1)
        tensor([1.0000, 0.5000])
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    each = [torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients]
    norms = torch.linalg.vector_norm(torch.stack(each), dim=0)
    scales = (largest / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scales.to(gradient.dtype).view(-1, *[1] * (gradient.ndim - 1)))


def _leaves_fused_open(factory: OptimizerFactory) -> bool:
    try:
        known = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    given = factory.keywords if isinstance(factory, partial) else {}
    return "fused" in known and not {"fused", "foreach"} & set(given)


def _checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise InvalidArgumentError(
            f"Expected `optimizer` to be a function that returns a torch.optim.Optimizer of the "
            f"parameters it is given, but got {type(optimizer).__name__}. Pass e.g. "
            f"partial(torch.optim.Adam, lr=1e-3)."
        )
    return optimizer


def _trained(
    factory: OptimizerFactory, shapes: Iterable[tuple[int, ...]], changed: bool
) -> tuple[str, list[Tensor]]:
    weights = [nn.Parameter(normal_numbers(shape, seed=i)) for i, shape in enumerate(shapes)]
    optimizer = build_optimizer(factory, weights)
    for step, scale in enumerate(_SCALES):
        for place, weight in enumerate(weights):
            gradient = normal_numbers(tuple(weight.shape), seed=1000 * step + place)
            if changed:
                gradient[_CHANGED] = -0.5 * scale * gradient[_CHANGED]
            weight.grad = gradient
        optimizer.step()
    state = [value for weight in weights for value in optimizer.state.get(weight, {}).values()]
    stacked = [value for value in state if isinstance(value, Tensor) and value.shape[:1] == (3,)]
    return type(optimizer).__name__, [*(weight.detach() for weight in weights), *stacked]


def _require_equal(name: str, one: list[Tensor], other: list[Tensor]) -> None:
    for left, right in zip(one, other, strict=True):
        same = _bits(left) == _bits(right)
        same[_CHANGED] = True
        if not bool(same.all()):
            raise InvalidArgumentError(
                f"Expected an optimizer that works element by element, but under {name} one "
                f"member's gradients change other members (a norm or a mean over the whole "
                f"tensor). Use e.g. SGD, Adam or AdamW."
            )


def _bits(tensor: Tensor) -> Tensor:
    # The bytes of each member, so that NaN equals itself.
    return tensor.contiguous().view(len(tensor), -1).view(torch.uint8)
