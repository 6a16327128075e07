r"""Rows of 32-bit words, each summed with fixed keys modulo 2^64: the loop of a fingerprint.

A processor multiplies bytes many times faster than 64-bit words: there a word is four digits and a
key eight, and one product of byte matrices has all their sums, exactly. Where such products are not
exact (old instructions saturate) or missing, words are multiplied as they are. The sums are the
same everywhere, so that a model has one identity on all devices.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor

LANES = 2
ROW = 1024
# How many rows are summed at once: temporaries that fit a CPU cache, few launches elsewhere.
_ROWS_ON_CPU, _ROWS_ELSEWHERE = 256, 16384
_DIGITS = 8  # of a key, in base 256
_FLIP = 0x00808080  # signs of a word's lower three bytes; the fourth has the word's


def signed(word: int) -> int:
    """Return an unsigned 64-bit word as torch has it.

    Example:
        >>> signed(2**64 - 1)
        -1
    """
    return word - 2**64 if word >= 2**63 else word


STEP = signed(0x9E3779B97F4A7C15)


def content_lanes(words: Tensor) -> Tensor:
    """Hash int32 words where they are: int64 [LANES]. Rows are mixed with their position and added.

    Example:
        >>> zeros, ones = torch.zeros(3, dtype=torch.int32), torch.ones(3, dtype=torch.int32)
        >>> bool((content_lanes(zeros) == content_lanes(ones)).any())
        False
    """
    whole = words.numel() // ROW
    body = words.narrow(0, 0, whole * ROW).view(whole, ROW)
    tail = words.narrow(0, whole * ROW, words.numel() - whole * ROW).unsqueeze(0)
    at_once = _ROWS_ON_CPU if words.device.type == "cpu" else _ROWS_ELSEWHERE
    known = keys(words.device)
    sums = [_by_words(rows, known) for rows in (*torch.split(body, at_once), tail)]
    positions = torch.arange(whole + 1, device=words.device)
    return mixed(torch.cat(sums, dim=1) + positions * STEP).sum(1)


@final
class ByteSums:
    """The same for many groups of tensors on the processor, as products of bytes.

    Rows of all groups fill one buffer, so that small tensors cost no products of their own.

    Example:
        >>> sums, words = ByteSums(), torch.arange(5000, dtype=torch.int32)
        >>> sums.add([words[:10], words[10:]])
        >>> not bytes_are_exact() or torch.equal(sums.lanes()[0], content_lanes(words))
        True
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(_ROWS_ON_CPU * ROW, dtype=torch.int32)
        self._filled = 0
        self._products: list[Tensor] = []
        self._counts: list[int] = []  # rows of each group

    def add(self, group: Sequence[Tensor]) -> None:
        """Hash the int32 words of some tensors as if they were joined."""
        words = torch.cat(list(group)) if len(group) > 1 else group[0]
        self._counts.append(len(words) // ROW + 1)  # the last is not whole
        self._write(words)
        self._write(torch.zeros(self._counts[-1] * ROW - len(words), dtype=torch.int32))

    def lanes(self) -> Tensor:
        """Return the hash of each group, int64 [groups, LANES]."""
        self._multiply()
        _, places, offset = _key_digits()
        found = torch.zeros(len(self._counts), LANES, dtype=torch.int64)
        if self._counts:
            products = torch.cat(self._products).view(-1, LANES, _DIGITS)
            rows = torch.tensor(self._counts)
            groups = torch.repeat_interleave(rows)
            positions = torch.arange(len(groups)) - (rows.cumsum(0) - rows)[groups]
            sums = (products * places).sum(2) + offset + (positions * STEP).unsqueeze(1)
            found.index_add_(0, groups, mixed(sums))
        return found

    def _write(self, words: Tensor) -> None:
        done = 0
        while done < len(words):
            count = min(len(words) - done, len(self._buffer) - self._filled)
            free = self._buffer.narrow(0, self._filled, count)
            torch.bitwise_xor(words.narrow(0, done, count), _FLIP, out=free)
            self._filled += count
            done += count
            if self._filled == len(self._buffer):
                self._multiply()

    def _multiply(self) -> None:
        rows = self._buffer[: self._filled].view(torch.int8).view(-1, 4 * ROW)
        self._products.append(torch._int_mm(rows, _key_digits()[0]))
        self._filled = 0


def keys(device: torch.device) -> Tensor:
    """Return [LANES, ROW] fixed pseudo-random words, made on the device: the same on all."""
    return mixed(torch.arange(1, LANES * ROW + 1, device=device) * STEP).view(LANES, ROW)


def mixed(words: Tensor) -> Tensor:
    """Scramble every 64-bit word by itself (a bijection with full avalanche)."""
    words = (words ^ ((words >> 30) & (2**34 - 1))) * signed(0xBF58476D1CE4E5B9)
    words = (words ^ ((words >> 27) & (2**37 - 1))) * signed(0x94D049BB133111EB)
    return words ^ ((words >> 31) & (2**33 - 1))


@functools.cache
def bytes_are_exact() -> bool:
    """Whether products of byte matrices are exact here, also where they are largest.

    Example:
        >>> bytes_are_exact() in (True, False)
        True
    """
    words = (torch.arange(_ROWS_ON_CPU * ROW) * STEP >> 32).to(torch.int32)
    for row, word in enumerate((0, -1, 0x7FFFFFFF, -(2**31), 0x7F7F7F7F ^ _FLIP)):
        words[row * ROW : (row + 1) * ROW] = word
    parts = [words, words[: 9 * ROW]]
    sums = ByteSums()
    try:
        for part in parts:
            sums.add([part])
        found = sums.lanes()
    except (AttributeError, RuntimeError):  # there is no such product
        return False
    expected = torch.stack([content_lanes(part) for part in parts])
    return sys.byteorder == "little" and torch.equal(found, expected)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch work in this thread alone: hundreds of short operations wait for no busy core."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _by_words(rows: Tensor, known: Tensor) -> Tensor:
    wide = rows.to(torch.int64)
    return torch.stack([(wide * key).sum(1) for key in known.narrow(1, 0, wide.shape[1])])


@functools.cache
def _key_digits() -> tuple[Tensor, Tensor, Tensor]:
    """Return the keys in signed digits, what each is worth, and what flipped bytes lack.

    A key's digits are those of the key times 256 to the power of a byte's place in its word.
    """
    known = keys(torch.device("cpu"))
    left = torch.stack([known * 256**byte for byte in range(4)], dim=2).flatten(1)
    found = []
    for _ in range(_DIGITS):
        found.append(((left + 128) & 255) - 128)
        left = (left - found[-1]) >> 8
    digits = torch.stack(found, dim=1).to(torch.int8).flatten(0, 1).t().contiguous()
    places = torch.tensor([signed(256**place) for place in range(_DIGITS)])
    return digits, places, known.sum(1) * _FLIP
