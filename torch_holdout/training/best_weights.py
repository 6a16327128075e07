"""The best weights of a sealed run: the same work after every pass, whatever the pass was worth."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn

from torch_holdout._shared.distributed import on_any_rank, on_first_rank, rank_and_world
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.passes import Passed

_EXTRA = "_extra_state"  # how torch names what modules save beside tensors
_OWNER_ONLY = 0o600


@final
@dataclass(frozen=True, repr=False)
class Weights:
    """A copy of a module's parameters and buffers in CPU memory; of sharded ones, this rank's."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, module: nn.Module, spare: "Weights | None" = None) -> "Weights":
        """Copy a module's weights, into the memory of a spare copy where that fits.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> kept = Weights.of(layer)
            >>> _ = nn.init.zeros_(layer.weight)
            >>> kept.put_back(layer)
            >>> bool(layer.weight.any())
            True
        """
        known = {} if spare is None else spare.tensors
        # Copies made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            tensors = {name: _copied(each, known.get(name)) for name, each in _named(module)}
        state = module.state_dict()
        extra = {key: copy.deepcopy(state[key]) for key in state if key.endswith(_EXTRA)}
        return cls(tensors, extra)

    def put_back(self, module: nn.Module) -> None:
        """Write the copy into the module, in place."""
        with torch.inference_mode():
            for name, tensor in _named(module):
                tensor.copy_(self.tensors[name])
        if self.extra:
            module.load_state_dict(self.extra, strict=False)


class KeptWeights(Protocol):
    """Where the weights of passes wait until the run says which was best."""

    def copy(self, module: nn.Module) -> None:
        """Copy the weights that a pass is evaluated with."""
        ...

    def judge(self, passed: Passed, run: str) -> None:
        """Take note of what a pass was worth; the work is the same for all."""
        ...

    def best(self, evaluation: int | None) -> Weights | None:
        """Return the weights of the run's best evaluation, if they are here."""
        ...

    def forget(self) -> None:
        """Let go of all copies."""
        ...


@final
class TwoBuffers:
    """Two copies in memory: each pass fills the spare one, and a better one becomes the best.

    Args:
        whole: Whether all passes of the run are made here. Without a number to compare with, the
            best of a resumed run is not known to be among them.
    """

    def __init__(self, *, whole: bool) -> None:
        self._kept: list[Weights | None] = [None, None]
        self._index = 0
        self._number = 0
        self._whole = whole

    def copy(self, module: nn.Module) -> None:
        """Copy into the spare buffer."""
        spare = 1 - self._index
        self._kept[spare] = Weights.of(module, self._kept[spare])

    def judge(self, passed: Passed, run: str) -> None:
        """Exchange the buffers if this pass is the best one."""
        here = (1 - self._index, passed.evaluation.number)
        self._index, self._number = here if passed.better else (self._index, self._number)

    def best(self, evaluation: int | None) -> Weights | None:
        """Return the best copy; with a number, only if it is of that evaluation."""
        known = self._whole if evaluation is None else evaluation == self._number
        return self._kept[self._index] if known else None

    def forget(self) -> None:
        """Free the memory."""
        self._kept, self._index, self._number = [None, None], 0, 0

    def __repr__(self) -> str:
        return "<two buffers of weights>"


@final
class Ring:
    """Files of the last passes, written in turn; the best of a run with patience is among them.

    They outlive the process. Their names are slots' numbers, and every pass writes one.

    Args:
        folder: Where; each run has a folder of its own in it.
        slots: How many passes are kept: the patience and one more.
        rank: Of which rank the files are; None if one file has the whole weights.
        writes: Whether this process writes them.
        resume: How a fit goes on with its run.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        *,
        rank: int | None,
        writes: bool,
        resume: str = "trainer.fit(..., ckpt_path=...)",
    ) -> None:
        self._folder = folder
        self._slots = slots
        self._rank = rank
        self._writes = writes
        self._resume = resume
        self._copy: Weights | None = None
        self._run = ""

    def copy(self, module: nn.Module) -> None:
        """Copy the weights, to be written when the number of the pass is known."""
        self._copy = Weights.of(module, self._copy)

    def judge(self, passed: Passed, run: str) -> None:
        """Write the copy into the slot of its pass."""
        self._run = run
        failed = False
        if self._copy is not None and self._writes:
            number, passes = passed.evaluation.number, passed.evaluation.passes
            slot = (passes - 1) % self._slots
            content = {"evaluation": number, "pass": passes, **vars(self._copy)}
            if not (passed.again and self._holds_later(slot, passes)):
                failed = not written(self._path(slot), content)
        if on_any_rank(failed):
            raise HoldoutError(
                f"The weights of a pass could not be written to {self._folder}. The pass is "
                f"recorded and the run stays open: make room there, and go on with {self._resume}."
            )

    def best(self, evaluation: int | None) -> Weights | None:
        """Return the weights of an evaluation, if a slot has them; every rank must ask."""
        if self._rank is not None:
            return self._read(evaluation)
        # Other machines may not see the first rank's files.
        return on_first_rank(rank_and_world()[1], lambda: self._read(evaluation))

    def _read(self, evaluation: int | None) -> Weights | None:
        for slot in range(self._slots):
            path = self._path(slot)
            if not path.exists():
                continue
            content = torch.load(path, map_location="cpu", weights_only=False)
            if content["evaluation"] == evaluation:
                return Weights(content["tensors"], content["extra"])
        return None

    def _holds_later(self, slot: int, passes: int) -> bool:
        """Whether a slot has a later pass of a run that was resumed, which may be the best."""
        path = self._path(slot)
        if not path.exists():
            return False
        content = torch.load(path, map_location="cpu", weights_only=False)
        return bool(content["pass"] > passes)

    def of_run(self, run: str) -> None:
        """Take up the files of a run that is resumed."""
        self._run = run

    def forget(self) -> None:
        """Remove the files of an ended run."""
        self._copy = None
        for slot in range(self._slots) if self._run and self._writes else ():
            self._path(slot).unlink(missing_ok=True)

    def _path(self, slot: int) -> Path:
        whose = "" if self._rank is None else f"-rank-{self._rank}"
        return self._folder / self._run / f"slot-{slot}{whose}.pt"

    def __repr__(self) -> str:
        return "<ring of weights>"


@contextmanager
def lent(module: nn.Module, weights: Weights) -> Iterator[None]:
    """Put other weights into a module for the block, and its own back after it."""
    own = Weights.of(module)
    weights.put_back(module)
    try:
        yield
    finally:
        own.put_back(module)


def whole_state(module: nn.Module) -> dict[str, Any]:
    """Return a module's state in CPU memory; shards are put together, so every rank must ask."""
    with torch.inference_mode(False), torch.no_grad():
        return {key: _whole(value) for key, value in module.state_dict().items()}


def written(path: Path, content: Any) -> bool:
    """Write a file that only its owner can read, whole or not at all; return whether it is."""
    unfinished = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(unfinished, flags, _OWNER_ONLY), "wb") as file:
            torch.save(content, file)
        unfinished.replace(path)
    except (OSError, RuntimeError):  # torch's own writer raises the latter on a full disk
        return False
    return True


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers, also those that are not saved; of sharded ones the own part."""
    for named in (module.named_parameters(), module.named_buffers()):
        for name, tensor in named:
            local = getattr(tensor, "to_local", None)
            yield name, tensor if local is None else local()


def _copied(tensor: Tensor, spare: Tensor | None) -> Tensor:
    if spare is None or (spare.shape, spare.dtype) != (tensor.shape, tensor.dtype):
        return tensor.detach().to("cpu", copy=True)
    return spare.copy_(tensor)


def _whole(value: Any) -> Any:
    gather = getattr(value, "full_tensor", None)
    whole = value if gather is None else gather()
    # A copy, because a view would be written with all of its storage.
    return whole.detach().to("cpu", copy=True) if isinstance(whole, Tensor) else whole
