"""Trials of a model and a loss on zeros and fresh weights, which reveal nothing private."""

import copy
import logging
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.kept_state import Trial, try_out
from torch_holdout.prediction.ensemble.members import (
    Backend,
    Loss,
    ModelFactory,
    Steps,
    convolves_much,
    output_chunks,
    stack_members,
    tensors_by_name,
)

_log = logging.getLogger("torch_holdout")
IGNORED = -100  # the label that torch's losses leave out
Choice = Literal["auto", "vmap", "loop"]
_LAYOUTS = 64  # how many sizes of queries are told apart
_NONE = ("", 0)  # no layer: no class, no hooks


@final
@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of a training step on zeros.

    Attributes:
        backend: The one to use.
        failure: The error of the model and the loss on zeros, if they fail even one by one.
        num_outputs: The size of the output's dimension 1, if it has one.
        labels: How many classes, if the loss refuses labels beyond the outputs.
        ignores: Whether that loss accepts the label -100.
    """

    backend: Backend
    failure: str = ""
    num_outputs: int | None = None
    labels: int | None = None
    ignores: bool = True


@final
class Prober:
    """Two fresh members like those of an ensemble, for trying things out in public."""

    def __init__(self, model_fn: ModelFactory, like: nn.Module, seed: int) -> None:
        self._twins = stack_members(model_fn, 2, seed)
        self._like = types_and_devices(like)
        self._layers = _layers_of(self._twins)
        for name, value in tensors_by_name(self._twins).items():
            dtype, device = self._like.get(name, (value.dtype, value.device))
            value.data = value.data.to(device=device, dtype=dtype)
        for own, other in zip(self._twins.modules(), like.modules(), strict=False):
            own.training = other.training
        self._device = next(like.parameters()).device
        self._tried: set[Any] = set()  # layouts of queries
        self._trial = Trial(written=frozenset(), kept="")

    def is_like(self, members: nn.Module) -> bool:
        """Whether the members' tensors have the types and devices that these were made with."""
        return self._like == types_and_devices(members)

    def require_known_layers(self, members: nn.Module) -> None:
        """Raise if members are built otherwise than a new model, so that nobody tried them out."""
        found = _layers_of(members)
        for name in sorted({*found, *self._layers}):
            kind, hooks = found.get(name, _NONE)
            known, expected = self._layers.get(name, _NONE)
            if kind == known and hooks <= expected:
                continue
            where = f"its layer {name!r}" if name else "the model"
            what = f"got a forward hook later ({hooks} instead of {expected})"
            if kind != known:
                what = f"was changed later ({kind or 'nothing'} instead of {known or 'nothing'})"
            raise InvalidArgumentError(
                f"Expected members with the layers and hooks that `model_fn` gives a model, but "
                f"{where} {what}. It would be called with the members' raw outputs, and could keep "
                f"something of one member for the next; the model with public weights, which is "
                f"tried out first, does not have it. Undo it, or do it inside of `model_fn`. "
                f"Nothing was charged."
            )

    def training(self, pair: tuple[Any, Any], loss: Loss, choice: Choice) -> Probe:
        """Try a step on zeros shaped like one member's ``pair``; log why a slow way is taken."""
        loss = _copied(loss)
        if choice == "auto" and convolves_much(self._twins, pair[0], training=True):
            _log.info("Members are trained one by one: large convolutions are faster so here.")
            choice = "loop"
        inputs, targets = (tree_map(self._zeros, side) for side in pair)
        backend: Backend = "loop" if choice == "loop" else "vmap"
        failure = self._step(inputs, targets, loss, backend)
        if failure and choice == "auto":
            _log.info("Members are trained one by one, because vmap cannot: %s", failure)
            backend, failure = "loop", self._step(inputs, targets, loss, "loop")
        if failure:
            return Probe(backend=backend, failure=failure)
        one = tree_map(lambda leaf: leaf[0], inputs)
        outputs = next(output_chunks(self._twins, one, "loop"))[0]
        size = int(outputs.shape[1]) if outputs.ndim > 1 else 1
        return Probe(
            backend=backend,
            num_outputs=size,
            labels=size if _refuses(loss, outputs, targets, size) else None,
            ignores=not _refuses(loss, outputs, targets, IGNORED),
        )

    def inference_backend(self, x: Any) -> Backend:
        """Return vmap if it can run a forward pass on zeros shaped like ``x``."""
        blank = tree_map(self._blank, x)
        try:
            list(output_chunks(self._twins, blank, "vmap", 2, written=self.written))
        except Exception as error:
            _log.info("Members answer one by one, because vmap cannot: %s", _told(error))
            return "loop"
        return "vmap"

    def answer(self, x: Any) -> Tensor:
        """Return the output of a model with public weights; it raises if the queries are wrong.

        At the first queries of a layout it also raises if the model keeps something between calls.
        """
        layout = _layout(x, sizes=len(self._tried) < _LAYOUTS)
        if layout not in self._tried:
            trial = try_out(self._twins, x)
            # A refusal stays: what a call has left elsewhere may not change again.
            kept = self._trial.kept or trial.kept
            self._trial = Trial(
                written=self._trial.written | trial.written,
                kept=kept,
                draws=self._trial.draws or trial.draws,
            )
            self._tried.add(layout)
        self._trial.require_nothing_kept()
        return next(output_chunks(self._twins, x, "loop", written=self.written))[0]

    @property
    def written(self) -> frozenset[str]:
        """The parameters and buffers that the model writes into, as far as was seen."""
        return self._trial.written

    @property
    def draws(self) -> bool:
        """Whether the model draws from the global random generators, as far as was seen."""
        return self._trial.draws

    def _zeros(self, leaf: Tensor) -> Tensor:
        return torch.zeros((2, *leaf.shape), dtype=leaf.dtype, device=self._device)

    def _blank(self, leaf: Any) -> Any:
        return torch.zeros_like(leaf, device=self._device) if isinstance(leaf, Tensor) else leaf

    def _step(self, inputs: Any, targets: Any, loss: Loss, backend: Backend) -> str:
        steps = Steps(template=self._twins, loss=loss, backend=backend)
        try:
            steps.losses(inputs, targets, "probe").sum().backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            return _told(error)
        return ""


def types_and_devices(module: nn.Module) -> dict[str, tuple[torch.dtype, torch.device]]:
    """Return the type and the device of every parameter and buffer.

    Example:
        >>> types_and_devices(nn.Linear(2, 1, bias=False))
        {'weight': (torch.float32, device(type='cpu'))}
    """
    return {name: (value.dtype, value.device) for name, value in tensors_by_name(module).items()}


def _layout(x: Any, *, sizes: bool) -> Any:
    """Return the structure, types and dimensions of queries; no value is read."""
    leaves, structure = tree_flatten(x)
    shapes = [
        (leaf.dtype, leaf.device, leaf.shape if sizes else leaf.ndim)
        if isinstance(leaf, Tensor)
        else type(leaf)
        for leaf in leaves
    ]
    return str(structure), tuple(shapes)


def _layers_of(module: nn.Module) -> dict[str, tuple[str, int]]:
    """Return of each layer its class, with a ``forward`` of its own if it has one, and its hooks.

    A class that ``model_fn`` makes anew for each model is known by its name.
    """
    return {
        name: (
            f"{type(layer).__qualname__}{' with another forward' * ('forward' in vars(layer))}",
            len(layer._forward_hooks) + len(layer._forward_pre_hooks),
        )
        for name, layer in module.named_modules()
    }


def _copied(loss: Loss) -> Loss:
    try:  # so that a loss that remembers does not remember zeros
        return copy.deepcopy(loss)
    except Exception:  # it cannot be copied
        return loss


def _refuses(loss: Loss, outputs: Tensor, targets: Any, label: int) -> bool:
    """Whether a loss that accepts label 0 refuses another; on the host, where that is an error."""
    leaf = tree_leaves(targets)[0]
    if leaf is not targets or leaf.is_floating_point() or leaf.dtype == torch.bool:
        return False
    host = outputs.detach().float().cpu()

    def accepts(value: int) -> bool:
        try:
            loss(host, torch.full_like(leaf[0], value, device="cpu"))
        except Exception:
            return False
        return True

    return not accepts(label) and accepts(0)  # not if it lives on a device, or takes other targets


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
