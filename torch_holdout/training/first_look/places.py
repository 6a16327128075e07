"""Where in the user's code something happens: the line that calls, the attribute that keeps."""

import gc
import os
import re
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

_HERE = str(Path(__file__).resolve().parents[2]) + os.sep
_STANDARD = str(Path(sysconfig.get_paths()["stdlib"])) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TOOLS = frozenset(
    (
        "torch", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric",
        "lightning_utilities", "numpy", "pandas", "sklearn", "scipy", "matplotlib",
        "tensorboard", "tqdm", "rich", "PIL", "transformers", "torchvision", "timm", "ray",
        "optuna", "optuna_integration", "wandb", "mlflow", "accelerate"
    )
)  # fmt: skip
_TORCH = str(Path(torch.__file__).parent) + os.sep
_PASSED_THROUGH = (  # parts of torch that call what they are given
    "torch._tensor", "torch.overrides", "torch._ops", "torch.utils._pytree", "torch.utils.data",
)  # fmt: skip
_WRAPPERS = ("DistributedDataParallel.", "FullyShardedDataParallel.", "OptimizedModule.")
_DEEPEST = 8  # containers around a kept value
_WIDEST = 64  # holders looked at for one container
_STORED = re.compile(r"[.]_(?:buffers|modules|parameters)\['([^']*)'\]")  # attributes of a module


class Place(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        if not self.line:
            return self.function
        folder, name = os.path.split(self.file)
        return f"{os.path.join(os.path.basename(folder), name)}:{self.line} in {self.function}"


def calling_place() -> Place:
    """Return the innermost line outside of this package, torch, Lightning and other libraries.

    Example:
        >>> calling_place().function
        '<module>'
    """
    innermost: Place | None = None
    for frame in _frames():
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            continue
        place = Place(file, frame.f_lineno, frame.f_code.co_name)
        innermost = innermost or place
        if not is_library(file):
            return place
    return innermost or Place("", 0, "an unknown place")


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, to this package or to one that user code is written with.

    Other installed packages may be the user's project.
    """
    if file.startswith((_HERE, _TORCH, "<frozen")):
        return True
    for folder in _INSTALLED:
        if folder in file:
            return file.rpartition(folder)[2].split(os.sep)[0] in _TOOLS
    return file.startswith(_STANDARD)


def calling_package() -> str:
    """Return the module that asked for a tensor's operation, past torch's own wrappers of it."""
    for frame in _frames():
        name = str(frame.f_globals.get("__name__", ""))
        ours = frame.f_code.co_filename.startswith(_HERE)
        if not ours and not name.startswith(_PASSED_THROUGH):
            return name
    return ""


def holder_of(kept: Any, ignored: set[int]) -> str:
    """Return which attribute, variable or closure keeps an object alive, as a path.

    ``ignored`` are the ids of containers that do not count. Keys that are not text are not shown.
    The path is empty if only this package keeps it.

    Example:
        >>> net, kept = torch.nn.Module(), torch.zeros(1)
        >>> net.losses = [kept]
        >>> holder_of(kept, {id(globals())})
        'Module.losses[0]'
    """
    queue = deque([(kept, "", 0)])
    known = {id(kept)}
    fallback, ours = "", False
    while queue:
        thing, path, depth = queue.popleft()
        for holder in _holders(thing, known | ignored | {id(queue)}):
            known.add(id(holder))
            if _is_ours(holder):
                ours = True
                continue
            named = _name(holder, thing)
            if named is not None and not named.startswith(_WRAPPERS):
                return _tidy(named + path)
            if named is not None:
                fallback = fallback or _tidy(named + path)
                continue
            step = _position(holder, thing)
            if step is None:
                fallback = fallback or f"a {type(holder).__qualname__}"
            elif depth < _DEEPEST:
                queue.append((holder, step + path, depth + 1))
    return fallback or ("" if ours else "something that Python's garbage collector does not see")


def _frames() -> Iterator[types.FrameType]:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holders(thing: Any, ignored: set[int]) -> list[Any]:
    holders = gc.get_referrers(thing)[:_WIDEST]
    frames = types.FrameType
    return [each for each in holders if id(each) not in ignored and not isinstance(each, frames)]


def _is_ours(holder: Any) -> bool:
    if isinstance(holder, dict):
        owners = gc.get_referrers(holder)[:_WIDEST]
        return any(
            getattr(owner, "__dict__", None) is holder and _is_ours(owner) for owner in owners
        )
    return type(holder).__module__.startswith("torch_holdout.training.")


def _name(holder: Any, thing: Any) -> str | None:
    """Return the path of ``thing`` in a holder that has a name of its own."""
    if isinstance(holder, types.FunctionType):
        return f"the defaults or the closure of {holder.__qualname__}"
    if isinstance(holder, types.ModuleType | type):
        return _attribute(holder, vars(holder), thing)
    if isinstance(holder, dict):
        for owner in gc.get_referrers(holder)[:_WIDEST]:
            if (
                isinstance(owner, type | types.ModuleType)
                or getattr(owner, "__dict__", None) is holder
            ):
                return _attribute(owner, holder, thing)
        if "__name__" in holder and "__builtins__" in holder:  # the variables of a module
            return _attribute(types.ModuleType(str(holder["__name__"])), holder, thing)
        return None
    slots = {
        slot: getattr(holder, slot, None) for kind in type(holder).__mro__ for slot in _slots(kind)
    }
    values = getattr(holder, "__dict__", None)
    return _attribute(holder, {**slots, **(values if isinstance(values, dict) else {})}, thing)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _attribute(owner: Any, values: Any, thing: Any) -> str | None:
    for name, value in list(values.items()):
        if value is thing:
            kind = owner if isinstance(owner, type) else type(owner)
            label = owner.__name__ if isinstance(owner, types.ModuleType) else kind.__name__
            return f"{label}.{name}"
    return None


def _position(holder: Any, thing: Any) -> str | None:
    """Return where ``thing`` is in a plain container, or None for other holders."""
    if isinstance(holder, dict):
        keys = [key for key, value in list(holder.items()) if value is thing]
        return f"[{keys[0]!r}]" if keys and isinstance(keys[0], str) else "[...]"
    if isinstance(holder, list | tuple | deque):
        return next((f"[{i}]" for i, part in enumerate(holder) if part is thing), "[...]")
    if isinstance(holder, set | frozenset | types.CellType):
        return ""
    return None


def _tidy(path: str) -> str:
    return _STORED.sub(r".\1", path)
