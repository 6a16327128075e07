"""Models that remember: tried out with public weights, and refused by name.

A member's answer must be a function of its weights and of the query. What a model keeps in a plain
attribute in eval mode is there for the next member: one record would move several votes. Parameters
and buffers are each member's own, and are put back after every call.
"""

import contextlib
import functools
import hashlib
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from torch_holdout._fingerprints.hashing import digest
from torch_holdout._noise.generators import GeneratorStates, lending, lent_generators
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.working_copy import copied, copied_inputs

_TENSORS = ("_parameters", "_buffers", "_modules")
_ROUNDING = 256  # units in the last place of the largest output
Contents = dict[tuple[str, str], bytes]


@final
@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of asking two members with public weights.

    Attributes:
        written: Parameters and buffers that the model writes into.
        kept: The attribute and the module in which it keeps something, or empty.
        draws: Whether the model draws from the global random generators.
    """

    written: frozenset[str]
    kept: str
    draws: bool = False

    def require_nothing_kept(self) -> None:
        """Raise if members would share what the model keeps."""
        if self.kept:
            raise InvalidArgumentError(
                f"Expected a model that keeps nothing between calls in eval mode, but a call "
                f"changed {self.kept}. All members would share it, so that one record could move "
                f"several votes. Keep it in a buffer, of which every member has its own, or not at "
                f"all. Only a fresh model with public weights was called. Nothing was charged."
            )


def try_out(twins: nn.Module, x: Any) -> Trial:
    """Find out whether a model keeps something between calls, and which tensors it writes into.

    Two members with fresh, public weights are asked, the first one twice. An attribute that is
    filled at the first call (a table of positions) is accepted if the second call leaves it alone
    and the other member's is equal; so are the weights that torch's ``weight_norm``,
    ``spectral_norm``, ``prune`` and recurrent layers compute before every call.

    Looked at are the attributes of all modules, through containers, objects, hooks and closures.
    Class attributes, globals and the inside of foreign objects cannot be seen, only that a member's
    outputs change because the other one was asked, or has other weights; nor can what a model keeps
    for other inputs or weights.

    Args:
        twins: Two members, stacked.
        x: Queries, which may be of any kind that the model takes.

    Example:
        >>> from torch_holdout.prediction.ensemble.members import stack_members
        >>> class Counting(nn.Linear):
        ...     calls = 0
        ...     def forward(self, x):
        ...         self.calls += 1
        ...         return super().forward(x)
        >>> try_out(stack_members(lambda: nn.Linear(2, 3), 2, 0), torch.zeros(1, 2)).kept
        ''
        >>> try_out(stack_members(lambda: Counting(2, 3), 2, 0), torch.zeros(1, 2)).kept
        '`calls` of the model (Counting)'
    """
    one, other, third = (copied(twins).eval() for _ in range(3))
    called = functools.partial(_called, twins, x)
    before, alone = _contents(one), called(third, 1)
    calls = [alone, called(one, 0)]
    first = _contents(one)
    calls.append(called(one, 0))
    pairs = [(before, _contents(other)), (first, _contents(one))]  # both copies share it; counted
    calls.append(called(other, 1))
    pairs.append((first, _contents(other)))  # computed from weights
    places = [
        place
        for state, later in pairs
        for place in sorted({*state, *later})
        if state.get(place) != later.get(place)
    ]
    kept = _told(dict(twins.named_modules()), *places[0]) if places else ""
    with _changed(twins, 0):  # something may hold the stack of all members instead of the copy
        later = [calls[-1], called(third, 1), called(one, 1)]
    if not kept and not all(_agree(alone.output, call.output) for call in later):
        kept = f"what the model ({type(twins).__name__}) returns later, by something not in sight"
    return Trial(
        written=frozenset().union(*(call.written for call in calls)),
        kept=kept,
        draws=any(call.draws for call in calls),
    )


@dataclass(frozen=True)
class _Call:
    written: set[str]
    output: Any
    draws: bool


def _called(twins: nn.Module, x: Any, module: nn.Module, member: int) -> _Call:
    """Ask one member by a copy; return which tensors it wrote into, and its output.

    Random numbers are the same each time.
    """
    tensors = {**dict(twins.named_parameters()), **dict(twins.named_buffers())}
    own = {name: value[member].clone() for name, value in tensors.items()}
    with torch.no_grad(), lending, lent_generators("trial"):
        before = GeneratorStates()
        output = functional_call(module, dict(own), (copied_inputs(x),))
        draws = before.have_gone_on()
    changed = {name for name, value in tensors.items() if not torch.equal(own[name], value[member])}
    return _Call(changed, output, draws)


@contextlib.contextmanager
def _changed(twins: nn.Module, member: int) -> Iterator[None]:
    """Give one member other weights for a while."""
    rows = [value.detach()[member] for value in twins.parameters()]
    before = [row.clone() for row in rows]
    try:
        for row in rows:
            row += 1
        yield
    finally:
        for row, own in zip(rows, before, strict=True):
            row.copy_(own)


def _agree(one: Any, other: Any) -> bool:
    """Whether two outputs are equal but for rounding, which differs between calls on a GPU."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return True
    if not one.is_floating_point():
        return torch.equal(one, other)
    finite = one.nan_to_num(0.0, 0.0, 0.0).abs()
    within = _ROUNDING * torch.finfo(one.dtype).eps * float(finite.max() if one.numel() else 0.0)
    return torch.allclose(one, other.to(one.dtype), rtol=0.0, atol=within, equal_nan=True)


def _contents(model: nn.Module) -> Contents:
    """Return a hash of every attribute of every module that is not a tensor of the members."""
    contents: Contents = {}
    modules = dict(model.named_modules())
    seen = {id(module): f"module {name}" for name, module in modules.items()}
    for name, module in modules.items():
        computed = _computed_anew(module)
        for key, value in vars(module).items():
            if key in _TENSORS:
                contents[name, key] = repr(list(value)).encode()
            elif key not in computed:
                hasher = hashlib.sha256()
                _feed(hasher, value, dict(seen))
                contents[name, key] = hasher.digest()
    return contents


def _computed_anew(module: nn.Module) -> set[str]:
    """Return attributes that torch itself computes from the weights before every call."""
    hooks = module._forward_pre_hooks.values()
    names = {hook.name for hook in hooks if isinstance(hook, WeightNorm | SpectralNorm)}
    names |= {hook._tensor_name for hook in hooks if isinstance(hook, BasePruningMethod)}
    lists = {"_flat_weights", "_flat_weight_refs"} if isinstance(module, nn.RNNBase) else set()
    return names | lists


def _feed(hasher: Any, value: Any, seen: dict[int, str]) -> None:
    parts = _parts(value)
    if parts is None:
        hasher.update(digest(value, lenient=True))
        return
    if id(value) in seen:
        hasher.update(seen[id(value)].encode())
        return
    seen[id(value)] = f"again {len(seen)}"
    hasher.update(f"{type(value).__qualname__} {len(parts)};".encode())
    for part in parts:
        _feed(hasher, part, seen)


def _parts(value: Any) -> list[Any] | None:
    """Return what a value is made of, or None if it is a leaf."""
    if isinstance(value, Tensor | type | types.ModuleType) or hasattr(value, "__array__"):
        return None
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return [*map(_inside, value.__closure__ or ()), value.__defaults__, vars(value)]
    attributes = _attributes(value)
    if isinstance(value, Mapping):
        return [*(part for pair in value.items() for part in pair), *attributes]
    if isinstance(value, list | tuple | deque):
        return [*value, *attributes]
    if isinstance(value, set | frozenset):
        return [*sorted(digest(part, lenient=True) for part in value), *attributes]
    return attributes or None


def _attributes(value: Any) -> list[Any]:
    """Return what an object has in its dictionary and in slots."""
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for given in slots for name in ([given] if isinstance(given, str) else given)]
    kept = [getattr(value, name, None) for name in names if not name.startswith("__")]
    return [*([vars(value)] if hasattr(value, "__dict__") else []), *kept]


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _told(modules: dict[str, nn.Module], name: str, attribute: str) -> str:
    kind = type(modules[name]).__name__ if name in modules else "made by the call"
    return f"`{attribute}` of " + (f"module {name!r} ({kind})" if name else f"the model ({kind})")
