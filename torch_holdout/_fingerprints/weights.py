r"""The fingerprint of a model: every parameter and buffer.

The content is hashed where it lives. Each tensor is read as 32-bit words :math:`x_i`; a row of 1024
words becomes :math:`\sum_i k_i x_i \bmod 2^{64}` with fixed random keys :math:`k_i`, rows are mixed
with their position and added, and so are groups of tensors. Permuted, negated, constant and
one-ulp-changed tensors differ; two given models collide with probability below 2^-60 over the keys.
Names, dtypes, shapes, the modules' classes and settings, and hyperparameters are hashed on the
host. What a module of the user's keeps in plain Python attributes is not seen: that is what
``version`` is for.

Weights that ``fully_shard`` or tensor parallelism spread over ranks are put together one tensor at
a time, so the identity is that of the whole model; all ranks must then look at the same moment.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from torch_holdout._fingerprints.hashing import digest, without_addresses
from torch_holdout._fingerprints.row_sums import (
    LANES,
    STEP,
    ByteSums,
    bytes_are_exact,
    content_lanes,
    mixed,
    one_thread,
    signed,
)
from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import InvalidArgumentError

_GROUP = 2**16  # words that are hashed together, where tensors are smaller
# Digests of settings by their text, which tells values of these types, and tuples of them, apart.
_SIMPLE = frozenset({int, float, bool, str, type(None)})
_DIGESTS: dict[str, str] = {}
_MOST_DIGESTS = 4096


@final
@dataclass(frozen=True, eq=False)
class WeightsFingerprint:
    """A model's identity: ``structure`` on the host, ``lanes`` (int64) still on the device.

    ``confirm`` holds the lanes of a second look, so that the door can see, in the same host read,
    whether the weights changed in between.
    """

    structure: str
    lanes: Tensor
    confirm: Tensor | None = None

    def confirmed_by(self, later: "WeightsFingerprint") -> "WeightsFingerprint":
        """Attach a second look at the same model, taken after the pass."""
        structure = self.structure if self.structure == later.structure else ""
        return WeightsFingerprint(structure, self.lanes, later.lanes)

    def query(self, lanes: list[int]) -> str:
        """Return the query's text, given this fingerprint's lanes as read by the door."""
        return hashlib.sha256(f"{self.structure}:{lanes}".encode()).hexdigest()


@torch.no_grad()
def weights_fingerprint(model: nn.Module, version: str = "") -> WeightsFingerprint:
    """Fingerprint every parameter and buffer of ``model`` on its own device, reading nothing back.

    Wrappers do not change the result: ``torch.compile``, ``DistributedDataParallel``, Lightning
    Fabric's, accelerate's; and neither does ``fully_shard``. If ``is_sharded(model)``, every rank
    must call this at the same moment.

    Args:
        model: The module whose weights the values were computed with.
        version: Whatever else decides the values (preprocessing, decoding, ...).

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> first = weights_fingerprint(layer)
        >>> with torch.no_grad():
        ...     _ = layer.weight.neg_()
        >>> bool((first.lanes == weights_fingerprint(layer).lanes).all())
        False
    """
    model = _unwrapped(model)
    _reshard(model)
    described = [f"version={version!r}", f"hyperparameters={_hyperparameters(model)}"]
    described += _structure(model)
    named = list(_named_tensors(model))
    described += [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in named]
    total = torch.zeros(LANES, dtype=torch.int64, device=named[0][1].device if named else None)
    by_bytes, places = ByteSums(), []
    with one_thread():
        for index, group in enumerate(_grouped(_words(_whole(tensor)) for _, tensor in named)):
            if _is_on_processor(group[0]) and bytes_are_exact():
                by_bytes.add(group)
                places.append(index)
            else:
                content = content_lanes(torch.cat(group)).to(total.device)
                total = total + mixed(content + signed(index * STEP % 2**64))
        if places:
            found = by_bytes.lanes() + (torch.tensor(places) * STEP).unsqueeze(1)
            total = total + mixed(found).sum(0).to(total.device)
    text = "\n".join(described).encode(errors="surrogatepass")
    return WeightsFingerprint(hashlib.sha256(text).hexdigest(), total)


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are spread over ranks, by ``fully_shard`` or as distributed tensors.

    Example:
        >>> is_sharded(nn.Linear(2, 2))
        False
    """
    return any(_is_spread(tensor) for tensor in model.parameters()) or any(
        _own_class(module) is not type(module) for module in model.modules()
    )


def _is_spread(tensor: Tensor) -> bool:
    # By its own method: importing DTensor is slow, and its place differs between versions of torch.
    return getattr(tensor, "full_tensor", None) is not None


def _whole(tensor: Tensor) -> Tensor:
    gather = getattr(tensor, "full_tensor", None)
    whole: Tensor = tensor if gather is None else gather()
    return whole


def _reshard(model: nn.Module) -> None:
    """Put away what a forward pass has gathered: it may be of a lower precision."""
    for module in model.modules():
        if _own_class(module) is not type(module):
            module.reshard()  # type: ignore[operator]


def _own_class(module: nn.Module) -> type:
    """Return the class of a module before ``fully_shard`` made one of its own from it."""
    kind = type(module)
    sharded = len(kind.__bases__) == 2 and kind.__bases__[0].__qualname__ == "FSDPModule"
    return kind.__bases__[1] if sharded else kind


def plain_modules(model: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield a model and all modules in it by name, as if nothing were wrapped.

    Example:
        >>> wrapped = nn.DataParallel(nn.Sequential(nn.DataParallel(nn.ReLU())))
        >>> [(name, type(module).__name__) for name, module in plain_modules(wrapped)]
        [('', 'Sequential'), ('0', 'ReLU')]
    """
    model = _unwrapped(model)
    yield name, model
    for own, child in model._modules.items():
        if child is not None:
            yield from plain_modules(child, f"{name}.{own}" if name else own)


def _unwrapped(model: nn.Module) -> nn.Module:
    while True:
        inside = "module" if _is_fabric(model) else "_orig_mod"  # that of torch.compile
        if isinstance(model, DistributedDataParallel | DataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, inside, None), nn.Module):
            model = inner
        else:
            return model


def _is_fabric(model: nn.Module) -> bool:
    # By name: Fabric is in one of two packages, or in none.
    return type(model).__name__ == "_FabricModule" and "fabric" in type(model).__module__


def _structure(model: nn.Module) -> Iterator[str]:
    """Describe each module by name, class and settings, such as strides, where known."""
    for name, module in plain_modules(model):
        settings = without_addresses(module.extra_repr())
        yield f"{name} {_own_class(module).__qualname__} {settings} {_settings(module)}"


def _settings(module: nn.Module) -> str:
    """Hash what torch's own layers keep in attributes and do not print, such as ``num_heads``."""
    if not _own_class(module).__module__.startswith("torch."):
        return ""  # a user's own counters may change at any time
    kept = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and key != "training" and not isinstance(value, Tensor)
    }
    if "_original_forward" in vars(module) or _is_own_forward(module, kept.get("forward")):
        kept.pop("forward", None)  # accelerate's, around that of the class
    if not all(map(_is_simple, kept.values())):
        return digest(kept, lenient=True).hex()
    written = repr(kept)  # most modules of a network have the settings of another one
    if written not in _DIGESTS:
        if len(_DIGESTS) == _MOST_DIGESTS:
            _DIGESTS.clear()
        _DIGESTS[written] = digest(kept, lenient=True).hex()
    return _DIGESTS[written]


def _is_simple(value: object) -> bool:
    parts = value if type(value) is tuple else (value,)
    return all(type(part) in _SIMPLE for part in parts)


def _is_own_forward(module: nn.Module, forward: object) -> bool:
    own = getattr(forward, "__func__", None)
    return own is not None and own is getattr(type(module), "forward", None)


def _hyperparameters(model: nn.Module) -> str:
    hparams = getattr(model, "hparams", None)  # Lightning modules have them
    return digest(hparams, lenient=True).hex() if isinstance(hparams, Mapping) else ""


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    _require_readable(model)
    alone = {"recurse": False, "remove_duplicate": False}
    modules = list(plain_modules(model))
    for kind, named in (
        ("parameter", (each for at, own in modules for each in own.named_parameters(at, **alone))),
        ("buffer", (each for at, own in modules for each in own.named_buffers(at, **alone))),
    ):
        for name, tensor in named:
            if not is_lazy(tensor) and not tensor.is_meta and not is_plain(tensor):
                raise InvalidArgumentError(
                    f"Expected dense weights, but {kind} {name!r} is {_what(tensor)}. Leave out "
                    f"model= and name the queries yourself, with version= or holdout.release."
                )
            if tensor.is_meta or is_lazy(tensor):
                raise InvalidArgumentError(
                    f"Expected every weight to hold data, but {kind} {name!r} does not yet. "
                    f"Run the model once (lazy modules) or load its weights first."
                )
            yield f"{kind} {name}", tensor


def _require_readable(model: nn.Module) -> None:
    """Raise if the weights are sharded so that a process cannot see its own."""
    for name, parameter in model.named_parameters():
        flattened = getattr(parameter, "_fsdp_flattened", False)
        if flattened or getattr(parameter, "ds_tensor", None) is not None:
            cut = "FullyShardedDataParallel" if flattened else "DeepSpeed's stage 3"
            raise InvalidArgumentError(
                f"Expected whole weights, or weights sharded by fully_shard (ModelParallelStrategy "
                f"in Lightning), but parameter {name!r} is cut up by {cut}, so that no process has "
                f"it whole and the query cannot be recognised. Use one of the former. Nothing was "
                f"charged."
            )


def _grouped(tensors: Iterator[Tensor]) -> Iterator[list[Tensor]]:
    """Put small tensors together, so that a model of many costs few launches.

    Shapes are hashed apart.
    """
    group: list[Tensor] = []
    size = 0
    for words in tensors:
        size += words.numel()
        if group and (size > _GROUP or words.device != group[0].device):
            yield group
            group, size = [], words.numel()
        if size > _GROUP:
            yield [words]
            size = 0
        else:
            group.append(words)
    if group:
        yield group


def _is_on_processor(words: Tensor) -> bool:
    return words.device.type == "cpu" and type(words) is Tensor  # else it may be fake


def _words(tensor: Tensor) -> Tensor:
    """Return the tensor's bytes as a flat int32 tensor, padded with zeros."""
    if tensor.element_size() == 4 and tensor.is_contiguous() and not tensor.is_neg():
        return tensor.detach().view(-1).view(torch.int32)
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
    if flat.storage_offset() * flat.element_size() % 4:
        flat = flat.clone()
    octets = flat.view(torch.uint8)
    if missing := -octets.numel() % 4:
        octets = torch.cat([octets, octets.new_zeros(missing)])
    return octets.view(torch.int32)


def _what(tensor: Tensor) -> str:
    return "quantised" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
