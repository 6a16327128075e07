"""The name of a model that is not a module: a hash of its content, equal in every process.

Not of a pickle's bytes, which depend on which parts are shared and on the version of the protocol:
the parts that ``pickle`` would store are walked, and each is hashed by its value. Dictionaries and
sets are hashed whatever their order, structured arrays field by field (between the fields is
memory that nobody has written), boosters by the text or bytes that they save themselves.
"""

import copyreg
import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from torch_holdout._fingerprints.hashing import function_parts, plain_bytes, plain_header
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._shared.tensors import is_plain
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError

_SCALARS = (type(None), bool, int, float, complex, str)
_PROTOCOL = 4
_DEEPEST = 100
_VERSIONS = ("_sklearn_version",)  # of the library that wrote a state, not of its content
# Trees of neighbours count their queries, at these places of their state.
_TREES = ("sklearn.neighbors._kd_tree.", "sklearn.neighbors._ball_tree.")
_COUNTS = range(7, 11)


def digest(obj: Any) -> str:
    """Name a model, or whatever else decides the values, by its content: a query for ``ask``.

    For models that are not torch modules: scikit-learn estimators and pipelines, LightGBM and
    XGBoost boosters, arrays, dictionaries and lists of parameters, text, bytes. A copy, a pickle
    read back and a fit repeated with the same seed and data have the same digest; another fit has
    another. Settings count too, also those that change no prediction (``n_jobs``). A module in it
    is named by its weights and settings.

    What cannot be named by its content is refused: open files, locks, generators, objects that
    cannot be pickled. So is a search that records how long fits took: name its
    ``best_estimator_``.

    A digest is a plain hash, and public like any query. Make it of a model, not of values on the
    holdout: whether two of those are equal would be told for free.

    Args:
        obj: The model; or a list of the model and what else decides its predictions.

    Example:
        >>> first, again = {"depth": 3, "weights": np.ones(2)}, {"weights": np.ones(2), "depth": 3}
        >>> digest(first) == digest(again), digest(first) == digest({"depth": 4})
        (True, False)
    """
    return errors_by_type(lambda: _Walk().hashed(obj).hex(), lambda kind: _unnamed(obj, kind))


@final
class _Walk:
    """One walk through an object's parts; each part becomes its own hash."""

    def __init__(self) -> None:
        self._entered: dict[int, int] = {}  # parts that are being walked, and how deep they are
        self._done: dict[int, tuple[Any, bytes]] = {}  # with the part, so that its id stays its own
        self._returns_to = sys.maxsize  # the outermost part that a cycle led back to

    def hashed(self, value: Any) -> bytes:
        """Return the hash of one part."""
        if isinstance(value, _SCALARS) and type(value) in _SCALARS:
            return _hash(type(value).__name__, repr(value).encode(errors="surrogatepass"))
        if id(value) in self._done:
            return self._done[id(value)][1]
        depth = len(self._entered)
        if id(value) in self._entered:
            self._returns_to = min(self._returns_to, self._entered[id(value)])
            return _hash("cycle", str(depth - self._entered[id(value)]).encode())
        if depth > _DEEPEST:
            raise InvalidArgumentError(
                f"Expected an object of at most {_DEEPEST} levels to name, but this one is deeper. "
                f"Name the query by the bytes of its own file: th.digest(data)."
            )
        outside, self._returns_to = self._returns_to, sys.maxsize
        self._entered[id(value)] = depth
        found = self._of_kind(value)
        del self._entered[id(value)]
        if self._returns_to >= depth:  # no part of it refers to what is around it
            self._done[id(value)] = (value, found)
            self._returns_to = outside
        else:
            self._returns_to = min(outside, self._returns_to)
        return found

    def _of_kind(self, value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return _hash("bytes", bytes(value))
        if type(value) in (list, tuple):
            return self._sequence("sequence", value)
        if type(value) in (set, frozenset):
            return _hash("set", *sorted(map(self.hashed, value)))
        if type(value) is dict:
            return self._mapping("mapping", value)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(np.asanyarray(value))
        return self._of_torch(value) or self._object(value)

    def _of_torch(self, value: Any) -> bytes | None:
        if isinstance(value, Tensor) and is_plain(value):
            content = plain_bytes(value)
            return _hash("tensor", plain_header(value, content), content)
        if isinstance(value, nn.Module):
            seen = weights_fingerprint(value)
            return _hash("module", seen.query(seen.lanes.tolist()).encode())
        return None

    def _object(self, value: Any) -> bytes:
        if isinstance(value, type):
            return _hash("class", _name_of(value).encode())
        if (saved := _saved(value)) is not None:
            return self._sequence(f"saved {_name_of(type(value))}", saved)
        if isinstance(value, types.FunctionType | functools.partial | types.MethodType):
            return self._sequence("function", function_parts(value))
        if _is_sparse(value):
            return self._sequence("sparse", _sparse_parts(value))
        reduced = copyreg.dispatch_table.get(type(value))  # as pickle does
        parts = value.__reduce_ex__(_PROTOCOL) if reduced is None else reduced(value)
        if isinstance(parts, str):  # a function of a compiled module, or a constant
            return _hash("global", f"{getattr(value, '__module__', '')}.{parts}".encode())
        made, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        return _hash(
            "object",
            _name_of(made).encode(),  # not its code, which is the library's
            self.hashed(arguments),
            self.hashed(_content(value, state)),
            self.hashed(list(items or ())),
            self._mapping("items", dict(pairs or ())),
        )

    def _sequence(self, kind: str, parts: Iterable[Any]) -> bytes:
        return _hash(kind, *map(self.hashed, parts))

    def _mapping(self, kind: str, parts: Mapping[Any, Any]) -> bytes:
        pairs = ((self.hashed(key), self.hashed(part)) for key, part in parts.items())
        return _hash(kind, *(half for pair in sorted(pairs) for half in pair))

    def _array(self, array: NDArray[Any]) -> bytes:
        header = f"{array.dtype.newbyteorder('<').str} {array.shape}".encode()
        if array.dtype.names is not None:
            fields = [self._array(array[name]) for name in array.dtype.names]
            return _hash("records", header, repr(array.dtype.names).encode(), *fields)
        if isinstance(array, np.ma.MaskedArray):
            seen = np.asarray(array.filled(0))
            return _hash("masked", self._array(seen), self._array(np.ma.getmaskarray(array)))
        if array.dtype.hasobject:
            return _hash("objects", header, self.hashed(array.ravel().tolist()))
        ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return _hash("array", header, ordered.tobytes())


def _hash(kind: str, *parts: bytes) -> bytes:
    hasher = hashlib.sha256(f"{kind} {len(parts)};".encode())
    for part in parts:
        hasher.update(f"{len(part)};".encode())
        hasher.update(part)
    return hasher.digest()


def _content(value: Any, state: Any) -> Any:
    """Return an object's state without what does not belong to its content."""
    if type(state) is dict:
        return {name: part for name, part in state.items() if name not in _VERSIONS}
    if type(state) is tuple and _name_of(type(value)).startswith(_TREES):
        return state[: _COUNTS.start] + state[_COUNTS.stop :]
    return state


def _saved(value: Any) -> list[Any] | None:
    """Return what a booster saves of itself, if it is one: its memory is not Python's."""
    packages = {kind.__module__.split(".")[0] for kind in type(value).__mro__}
    if type(value).__name__ != "Booster":
        return None
    if "lightgbm" in packages:
        return [value.model_to_string(num_iteration=-1), max(value.best_iteration, 0)]
    return [bytes(value.save_raw("ubj"))] if "xgboost" in packages else None


def _is_sparse(value: Any) -> bool:
    module = type(value).__module__
    return module.startswith("scipy.sparse") and callable(getattr(value, "tocsr", None))


def _sparse_parts(value: Any) -> Iterator[Any]:
    """Yield what a sparse matrix holds; of its state some is remembered only once it was used."""
    rows = value.tocsr(copy=True)
    rows.sum_duplicates()
    yield from (value.format, value.shape, rows.data, rows.indices, rows.indptr)


def _name_of(made: Any) -> str:
    return f"{made.__module__}.{made.__qualname__}"


def _unnamed(obj: Any, kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected an object that can be named by its content, but a part of this "
        f"{type(obj).__name__} cannot ({kind}): an open file, a lock, a generator, or whatever "
        f"else cannot be pickled. Name the query yourself, by text or by the bytes of the model's "
        f"own file: th.digest(data). Nothing was charged."
    )
