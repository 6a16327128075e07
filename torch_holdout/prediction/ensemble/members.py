"""Members as one module: their tensors stacked, their steps taken together or one by one."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from torch_holdout._noise.generators import lent_generator, lent_generators
from torch_holdout._shared.checks import require_callable
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.working_copy import WorkingCopy, copied_inputs
from torch_holdout.prediction.mechanisms.votes import is_like, vote_table, without_numbers

Backend = Literal["vmap", "loop"]
Loss = Callable[[Any, Any], Tensor]
ModelFactory = Callable[[], nn.Module]
State = dict[str, Tensor]
_CHUNK = 2**23  # input elements that go through members at once, at inference


def stack_members(model_fn: ModelFactory, num_members: int, seed: int) -> nn.Module:
    """Return one module whose parameters and buffers hold those of all members, one a row.

    The first weights of a member depend on the seed and its number only.

    Example:
        >>> stacked = stack_members(lambda: nn.Linear(3, 2), 5, seed=0)
        >>> {name: tuple(value.shape) for name, value in stacked.named_parameters()}
        {'weight': (5, 2, 3), 'bias': (5, 2)}
    """
    template = _initial(model_fn, seed, 0)
    first = tensors_by_name(template)
    stacked = {
        name: value.detach().new_empty((num_members, *value.shape)) for name, value in first.items()
    }
    for member in range(num_members):
        model = template if member == 0 else _initial(model_fn, seed, member)
        own = tensors_by_name(model)
        if {n: (v.shape, v.dtype) for n, v in own.items()} != {
            n: (v.shape[1:], v.dtype) for n, v in stacked.items()
        }:
            raise InvalidArgumentError(
                "Expected `model_fn` to return the same architecture every time, but the names, "
                "shapes or types of its parameters and buffers differ between two calls."
            )
        for name, value in own.items():
            if member and value is first[name]:
                raise InvalidArgumentError(
                    f"Expected `model_fn` to return a new model every time, but two models share "
                    f"{name!r}. Make all layers inside `model_fn`, or copy.deepcopy what they have "
                    f"in common."
                )
            stacked[name][member].copy_(value.detach())
    # In place, so that tied weights stay tied and layers that list their weights still find them.
    for name, value in first.items():
        value.data = stacked[name]
    return template


@final
@dataclass(frozen=True, kw_only=True)
class Steps:
    """A training step of all members of a stacked module."""

    template: nn.Module
    loss: Loss
    backend: Backend  # all together, or one by one
    chunk_size: int | None = None  # how many members' activations are kept at once
    first: int = 0  # the number of the first member here

    def losses(self, inputs: Any, targets: Any, *key: object) -> Tensor:
        """Return the loss of every member; ``key`` decides the dropout masks."""
        parameters: State = dict(self.template.named_parameters())
        buffers = dict(self.template.named_buffers())
        count = len(next(iter(tree_leaves(inputs))))
        if self.chunk_size is None or self.chunk_size >= count:
            return self._together(parameters, buffers, inputs, targets, 0, key)
        losses: Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
            lambda own, start, stop: self._together(
                dict(zip(parameters, own, strict=True)),
                {name: buffer[start:stop] for name, buffer in buffers.items()},
                tree_map(lambda leaf: leaf[start:stop], inputs),
                tree_map(lambda leaf: leaf[start:stop], targets),
                start,
                key,
            ),
            self.chunk_size,
            *parameters.values(),
        )
        return losses

    def _together(
        self,
        parameters: State,
        buffers: State,
        inputs: Any,
        targets: Any,
        start: int,
        key: tuple[object, ...],
    ) -> Tensor:
        first, device = self.first + start, next(iter(tree_leaves(inputs))).device
        if self.backend == "vmap":
            with lent_generator(*key, first, device=device), _StackedLinear():
                losses, moved = vmap(self._one, randomness="different")(
                    parameters, buffers, inputs, targets
                )
            _write_back(buffers, moved)
            return losses
        rows = {name: value.unbind(0) for name, value in parameters.items()}
        values = []
        for member in range(len(next(iter(tree_leaves(inputs))))):
            with lent_generator(*key, first + member, device=device):
                own = {name: buffer[member] for name, buffer in buffers.items()}
                value, moved = self._one(
                    {name: row[member] for name, row in rows.items()},
                    own,
                    _row(inputs, member),
                    _row(targets, member),
                )
            _write_back(own, moved)
            values.append(value)
        return torch.stack(values)

    def _one(
        self, parameters: State, buffers: State, inputs: Any, targets: Any
    ) -> tuple[Tensor, State]:
        state = {**parameters, **buffers}
        output = functional_call(self.template, state, (inputs,))
        value = self.loss(output, targets)
        if not isinstance(value, Tensor) or value.ndim:
            raise InvalidArgumentError(
                "Expected the loss to return a tensor with one number for a member's batch, but it "
                "returned something else. Use e.g. reduction='mean'."
            )
        # What a layer assigned instead of changing it in place.
        return value, {name: state[name] for name in buffers if state[name] is not buffers[name]}


class _StackedLinear(TorchFunctionMode):
    """Linear layers as W x^T, whose gradient by W comes out in W's own layout.

    As x W^T it comes out transposed, and copying it takes longer than the rest of the layer.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is nn.functional.linear and not kwargs:
            x, weight, *rest = args
            if x.ndim > 1 and weight.ndim == 2:
                return _linear(x, weight, rest[0] if rest else None)
        return func(*args, **(kwargs or {}))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    flat = x.flatten(0, -2).mT
    transposed = weight @ flat if bias is None else torch.addmm(bias[:, None], weight, flat)
    return transposed.mT.reshape(*x.shape[:-1], len(weight))


class _Chunked(torch.autograd.Function):
    """Losses of members chunk by chunk, each with its gradients, so that no activation is kept."""

    @staticmethod
    def forward(ctx: Any, run: Any, size: int, *parameters: Tensor) -> Tensor:
        wanted = [parameter.requires_grad for parameter in parameters]
        gradients = [
            torch.empty_like(p) if need else None
            for p, need in zip(parameters, wanted, strict=True)
        ]
        losses = []
        for start in range(0, len(parameters[0]), size):
            stop = min(start + size, len(parameters[0]))
            with torch.enable_grad():
                own = [
                    p[start:stop].detach().requires_grad_(need)
                    for p, need in zip(parameters, wanted, strict=True)
                ]
                value = run(own, start, stop)
                learned = [p for p in own if p.requires_grad]
                computed = iter(torch.autograd.grad(value.sum(), learned, allow_unused=True))
            for gradient in gradients:
                if gradient is not None:
                    part = next(computed)
                    gradient[start:stop] = 0 if part is None else part
            losses.append(value.detach())
        ctx.save_for_backward(*gradients)
        return torch.cat(losses)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (scale,) = outer
        scaled = [
            None if g is None else g * scale.to(g.dtype).view(-1, *[1] * (g.ndim - 1))
            for g in ctx.saved_tensors
        ]
        return None, None, *scaled


def output_chunks(
    template: nn.Module,
    x: Any,
    backend: Backend,
    chunk_size: int | None = None,
    pattern: Tensor | None = None,
    written: Iterable[str] = (),
    *,
    draws: bool = False,
) -> Iterator[Tensor]:
    """Yield the members' outputs [m, B, ...] in eval mode, a few members at a time.

    Only a working copy is called: the template stays as it is, whatever other threads do. An output
    is a function of the member's tensors and of ``x``: what a call writes into buffers, into the
    parameters named in ``written`` and into attributes is gone with it. Of a model that ``draws``
    random numbers, it is a function of the generators' state before all members, too.

    ``pattern`` is the answer of a twin with public weights. If a member gives no such tensor, that
    is a fact about its records: it gives NaN instead, silently. Without a pattern it raises.

    Example:
        >>> stacked = stack_members(lambda: nn.Linear(3, 2), 5, seed=0)
        >>> [tuple(part.shape) for part in output_chunks(stacked, torch.ones(4, 3), "vmap", 2)]
        [(2, 4, 2), (2, 4, 2), (1, 4, 2)]
    """
    state = tensors_by_name(template)
    working = WorkingCopy(template, written, draws=draws)
    members = len(next(iter(state.values())))
    if chunk_size is None:
        elements = sum(leaf.numel() for leaf in tree_leaves(x) if isinstance(leaf, Tensor))
        chunk_size = max(1, min(members, _CHUNK // max(elements, 1)))
    if backend == "loop":
        chunk_size = 1
    for start in range(0, members, chunk_size):
        own = {name: value[start : start + chunk_size] for name, value in state.items()}
        with torch.no_grad():  # not beyond the yield, where the caller's code runs
            chunk = (
                _outputs(working, own, x) if pattern is None else _like(pattern, working, own, x)
            )
        yield chunk


def _outputs(working: WorkingCopy, rows: State, x: Any) -> Tensor:
    working = working.fresh()
    x, own = copied_inputs(x), working.own(rows)

    def one(state: State) -> Any:
        return functional_call(working.module, state, (x,))

    if len(next(iter(own.values()))) == 1:
        alone = {name: value[0] for name, value in own.items()}
        return _require_tensor(working.ask(lambda: one(alone)))[None]
    return _require_tensor(working.ask(lambda: vmap(one, randomness="different")(own)))


def _like(pattern: Tensor, working: WorkingCopy, own: State, x: Any) -> Tensor:
    """Return outputs like the twin's; if not all are, ask one by one, and put NaN for failures."""
    members = len(next(iter(own.values())))
    with contextlib.suppress(Exception):
        outputs = _outputs(working, own, x)
        if is_like(outputs, pattern):
            return outputs
    if members == 1:
        return without_numbers(pattern)[None]
    ones = [{name: row[k : k + 1] for name, row in own.items()} for k in range(members)]
    return torch.cat([_like(pattern, working, one, x) for one in ones])


def convolves_much(template: nn.Module, x: Any, *, training: bool) -> bool:
    """Return whether a grouped convolution is slower than one by one: on the host, as measured."""
    if next(template.parameters()).device.type != "cpu":
        return False
    elements = sum(leaf.numel() for leaf in tree_leaves(x) if isinstance(leaf, Tensor))
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in template.modules())
    return convolves and elements > (2**14 if training else 2**12)


class VoteCounter(nn.Module):
    """A module that maps inputs to vote counts, int64 [B, C], and can be exported.

    A member that returns NaN anywhere for a query votes for class 0.

    Example:
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
        state = tensors_by_name(self.members)
        if self._loop:
            rows = {name: value.unbind(0) for name, value in state.items()}
            members = [
                dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)
            ]
            outputs = torch.stack([functional_call(self.members, own, (x,)) for own in members])
        else:
            outputs = vmap(lambda one: functional_call(self.members, one, (x,)))(state)
        return vote_table(outputs)


Votes = VoteCounter  # what pickles of version 0.1.0 name it


def _require_tensor(output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise InvalidArgumentError(
            f"Expected the model to return a tensor [queries, ...], but got a "
            f"{type(output).__name__}. Wrap it in a module that does."
        )
    return output


def _initial(model_fn: ModelFactory, seed: int, member: int) -> nn.Module:
    require_callable("model_fn", model_fn)
    with lent_generators(seed, "first weights", member):
        model = model_fn()
    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(
            f"Expected `model_fn` to return a torch.nn.Module, but got {type(model).__name__}."
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise InvalidArgumentError(
                f"Expected members that share nothing, but {name!r} is a SyncBatchNorm, which "
                f"averages over processes. Use BatchNorm or GroupNorm."
            )
    for name, value in tensors_by_name(model).items():
        if is_lazy(value):
            raise InvalidArgumentError(
                f"Expected `model_fn` to return a model with all its weights, but {name!r} is not "
                f"initialised. Name the sizes of lazy layers."
            )
    if not list(model.parameters()):
        raise InvalidArgumentError("Expected `model_fn` to return a model with parameters.")
    return model


def tensors_by_name(module: nn.Module) -> State:
    """Return the parameters and buffers of a module."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _row(tree: Any, member: int) -> Any:
    return tree_map(lambda leaf: leaf[member], tree)


def _write_back(buffers: State, moved: State) -> None:
    with torch.no_grad():
        for name, value in moved.items():
            buffers[name].copy_(value)
