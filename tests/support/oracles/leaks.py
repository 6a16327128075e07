"""The leak harness: does a raw holdout value appear anywhere in something that left?"""

import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass

import numpy as np
import torch

from support.machines.loggers import rows_of

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
TOLERANCE = 2e-6  # relative; a float32 of the raw value is well inside


def raw_hits(thing, raw, path="", depth=8):
    """List where one of the ``raw`` numbers is found, in text, bytes, tensors or containers."""
    if depth < 0:
        return []
    if isinstance(thing, str):
        return [path] if any(_near(float(n), raw) for n in _NUMBER.findall(thing)) else []
    if isinstance(thing, bytes | bytearray):
        return [path] if _in_bytes(bytes(thing), raw) else []
    if isinstance(thing, bool) or thing is None:
        return []
    if isinstance(thing, int | float | np.number):
        return [path] if _near(float(thing), raw) else []
    if isinstance(thing, torch.Tensor | np.ndarray):
        flat = torch.as_tensor(thing).detach().double().flatten().tolist()[:10_000]
        return [path] if any(_near(value, raw) for value in flat) else []
    return _in_parts(thing, raw, path, depth)


def _in_parts(thing, raw, path, depth):
    if isinstance(thing, Mapping):
        parts = [(f"{path}[{key!r}]", part) for key, part in thing.items()]
        parts += [(f"{path} key", key) for key in thing]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(thing)]
    elif is_dataclass(thing) and not isinstance(thing, type):
        parts = [(f"{path}.{key}", part) for key, part in asdict(thing).items()]
    else:
        parts = [(f"{path} text", str(thing))]
    return [hit for where, part in parts for hit in raw_hits(part, raw, where, depth - 1)]


def _near(value, raw):
    return any(abs(value - one) <= TOLERANCE * abs(one) for one in raw)


def _in_bytes(content, raw):
    """Look for the value as text or as a float of either width and byte order."""
    patterns = [struct.pack(f, one) for one in raw for f in ("<d", ">d", "<f", ">f")]
    if any(pattern in content for pattern in patterns):
        return True
    return bool(raw_hits(content.decode("latin-1"), raw))


def files_below(folder):
    """Read every file that a run left, by its name; a database that is not ours by its rows."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def _content(path):
    if path.suffix == ".ckpt":
        return [path.read_bytes(), torch.load(path, weights_only=False)]
    if path.name == "mlflow.db":  # as bytes, a million of them, a float could be there by chance
        return rows_of(path)
    return path.read_text() if path.suffix == ".csv" else path.read_bytes()


def spy(pl, seen):
    """A callback, to be put first: it copies every dictionary and every output at every hook."""

    class Spy(pl.Callback):
        def look(self, trainer, *arguments):
            for name in ("callback_metrics", "logged_metrics", "progress_bar_metrics"):
                seen.append(dict(getattr(trainer, name)))
            seen.extend({"outputs": a} for a in arguments[1:2] if isinstance(a, dict))

        on_validation_batch_start = on_validation_batch_end = on_validation_epoch_end = look
        on_validation_end = on_sanity_check_end = on_train_epoch_end = on_train_end = look

    return Spy()
