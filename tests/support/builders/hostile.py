"""Arguments that no function asked for: wrong types, extremes, objects that raise.

Every entry makes a fresh value, because some can be used only once.
"""

import functools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class OwnError(Exception):
    """Raised by the methods of an argument; it may pass through."""


class Raises:
    """Every question put to it raises, also how it looks."""

    def _raise(self, *arguments):
        raise OwnError("an argument's own method")

    __len__ = __iter__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __repr__ = __str__ = _raise
    __getitem__ = __contains__ = __float__ = __int__ = __index__ = __bool__ = __call__ = _raise
    __add__ = __radd__ = __mul__ = __rmul__ = __format__ = __fspath__ = _raise
    __hash__ = object.__hash__


class RaisesAttributes:
    """Every attribute raises, other than one it does not have."""

    def __getattr__(self, name):
        raise OwnError("an argument's own attribute")


class RaisingDataset(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        raise OwnError("a record")


class LongDataset(Dataset):
    """Claims to be longer than any memory, and raises when it is read to the end."""

    def __init__(self, size=10**15):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= 20:
            raise OwnError("no more records")
        return torch.zeros(2), 0


class OddLength(LongDataset):
    """Its length is what ``len`` refuses."""

    def __len__(self):
        return self.size


def nested(depth=3000):
    """A list in a list in a list ..."""
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


def cyclic():
    """A list that contains itself."""
    own = []
    own.append(own)
    return own


NUMBERS = (
    *(-1, 0, 1, 2, 3, 7, -0.0, 0.5, 1.0, -1.5, 1e-9, 1e308, -1e308, 5e-324, 1e-320, 2.0**-1022),
    *(math.nan, math.inf, -math.inf, 10**400, -(10**400), 2**31, 2**53 + 1, 2**62, 2**63, 2**64),
    *(10**5000, 1 - 2.0**-53, 1 + 2.0**-52, True, False, 1j),
    *(Fraction(1, 3), Fraction(10**400, 3), Fraction(1, 10**400), Fraction(10**5000, 7)),
    *(Decimal("0.1"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999")),
    *(np.float64(0.5), np.float64("nan"), np.float32(0.3), np.float16(6e4), np.longdouble(1e308)),
    *(np.int8(100), np.uint8(200), np.int64(2**62), np.uint64(2**64 - 1), np.bool_(True)),
    *(np.complex128(1), np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.str_("x")),
)
TEXTS = (
    *("", " ", "x", "a\x00b", "\ud800", "line\nline", "\u202eabc", "x" * 100_000, "NaN", "0.5"),
    *("../../etc/passwd", "%s%n{0}{x!r}", "memory://", "val_acc", "'; DROP TABLE answers; --"),
    *(b"", b"\xff\xfe", b"x", bytearray(b"abc"), memoryview(b"abc")),
)
MADE = (
    *(list, tuple, dict, set, frozenset, object, nested, cyclic, Raises, RaisesAttributes),
    lambda: {1: 2, None: 3},
    lambda: {"val_acc": None},
    lambda: [1, "x", None],
    lambda: [math.nan, -1.0],
    lambda: (10**400,),
    lambda: [Raises()],
    lambda: range(10**18),
    lambda: (step for step in (1, 2, 3)),
    lambda: iter([]),
    lambda: lambda *arguments: None,
    lambda: lambda: "x",
    lambda: functools.partial(int, "x"),
    lambda: math.sqrt,
    lambda: type,
    lambda: int,
    lambda: Exception("an error as an argument"),
    lambda: Ellipsis,
    lambda: NotImplemented,
    lambda: np.zeros(0),
    lambda: np.array([math.nan, 1.0]),
    lambda: np.array([None, "x"], dtype=object),
    lambda: np.array([1 + 1j]),
    lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
    lambda: np.array(0.5, dtype=np.float16),
    lambda: np.array(["x", "y"]),
    lambda: np.zeros((2, 0, 3)),
    lambda: torch.tensor(0.5),
    lambda: torch.tensor(math.nan),
    lambda: torch.zeros(0),
    lambda: torch.ones(4),
    lambda: torch.zeros(3, 2, 2),
    lambda: torch.tensor([True, False]),
    lambda: torch.tensor([2**62, -1]),
    lambda: torch.tensor([1 + 2j]),
    lambda: torch.ones(2, 2).to_sparse(),
    lambda: torch.ones(3, requires_grad=True),
    lambda: torch.ones(2, device="meta"),
    lambda: torch.ones(1).expand(5),
    lambda: torch.ones(4, dtype=torch.float16),
    lambda: torch.ones(4, dtype=torch.bfloat16),
    lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    lambda: nn.Linear(2, 2),
    lambda: nn.Linear(2, 2, device="meta"),
    lambda: nn.Linear,
    lambda: nn.LazyLinear(2),
    lambda: TensorDataset(torch.zeros(0, 2)),
    lambda: TensorDataset(torch.zeros(5, 2)),
    lambda: DataLoader(TensorDataset(torch.zeros(5, 2)), batch_size=2),
    RaisingDataset,
    LongDataset,
    lambda: OddLength(-1),
    lambda: OddLength(2.5),
    lambda: OddLength(10**30),
)


def hostile(generator):
    """Draw one of them: often a number, sometimes None."""
    kind = generator.random()
    if kind < 0.05:
        return None
    if kind < 0.5:
        return generator.choice(NUMBERS)
    if kind < 0.65:
        return generator.choice(TEXTS)
    return generator.choice(MADE)()


def _raises(*arguments, **named):
    raise OwnError("a function of the caller's")


def hostile_call(generator):
    """Draw something where a function is wanted: no function, or one that raises or returns junk.

    A function that Python itself cannot call with these arguments raises Python's own TypeError.
    """
    value = hostile(generator)
    if not callable(value):
        return value
    junk = hostile(generator)
    return generator.choice((_raises, lambda *arguments, **named: junk))
