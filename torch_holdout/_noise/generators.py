"""Global generators, seeded for a while and put back: models and their layers draw from those."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from torch_holdout._noise.fixed import derived_seed
from torch_holdout._shared.locks import OwnLock

lending = OwnLock()  # of threads that answer: two that overlap would put back each other's states


@contextmanager
def lent_generator(*key: object, device: torch.device | None = None) -> Iterator[None]:
    """Run with torch's global generators, the host's and the device's, seeded; restore them.

    Example:
        >>> with lent_generator(7, "member", 0):
        ...     first = torch.nn.Linear(2, 2).weight
        >>> with lent_generator(7, "member", 0):
        ...     torch.equal(first, torch.nn.Linear(2, 2).weight)
        True
    """
    seed = derived_seed(*key)
    host = torch.default_generator.get_state()
    on_cuda = device is not None and device.type == "cuda"
    there = torch.cuda.get_rng_state(device) if on_cuda else None  # type: ignore[arg-type]
    try:
        torch.default_generator.manual_seed(seed)
        if there is not None:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
    finally:
        torch.default_generator.set_state(host)
        if there is not None:
            torch.cuda.set_rng_state(there, device)  # type: ignore[arg-type]


@contextmanager
def lent_generators(*key: object) -> Iterator[None]:
    """Run with the global generators of torch, numpy and Python seeded by ``key``; restore them.

    Example:
        >>> with lent_generators(7):
        ...     first = random.random()
        >>> with lent_generators(7):
        ...     first == random.random()
        True
    """
    states = GeneratorStates()
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else None
    try:
        random.seed(derived_seed(*key))
        np.random.seed(derived_seed(*key) % 2**32)
        with lent_generator(*key, device=device):
            yield
    finally:
        states.put_back()


class GeneratorStates:
    """The states of the global generators of torch, numpy and Python, to be put back.

    Example:
        >>> before = GeneratorStates()
        >>> first = torch.rand(2), random.random()
        >>> before.put_back()
        >>> torch.equal(first[0], torch.rand(2)), first[1] == random.random()
        (True, True)
    """

    def __init__(self) -> None:
        self._python, self._arrays = random.getstate(), np.random.get_state()
        self._host = torch.default_generator.get_state()
        cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state() if cuda else None
        self._others: list[tuple[Callable[[Any], object], Any]] = []

    def add(self, value: Any) -> None:
        """Keep the state of a generator too; other values are left alone."""
        if isinstance(value, torch.Generator):
            self._others.append((value.set_state, value.get_state()))
        elif isinstance(value, random.Random):
            self._others.append((value.setstate, value.getstate()))
        elif isinstance(value, np.random.RandomState):
            self._others.append((value.set_state, value.get_state()))
        elif isinstance(value, np.random.Generator):
            bits = value.bit_generator
            self._others.append((partial(setattr, bits, "state"), bits.state))

    def values(self) -> tuple[Any, ...]:
        """Return the states of the global generators, to compare how far they have gone."""
        return self._python, self._arrays, self._host, self._cuda

    def have_gone_on(self) -> bool:
        """Whether a global generator was drawn from, or seeded, since.

        Example:
            >>> states = GeneratorStates()
            >>> states.have_gone_on(), random.random() < 1, states.have_gone_on()
            (False, True, True)
        """
        now = GeneratorStates()
        states = [(one._host, one._cuda, *one._arrays) for one in (self, now)]
        same = all(np.array_equal(*pair) for pair in zip(*states, strict=True))
        return not same or self._python != now._python

    def put_back(self) -> None:
        """Restore the states."""
        for restore, state in self._others:
            restore(state)
        random.setstate(self._python)
        np.random.set_state(self._arrays)
        torch.default_generator.set_state(self._host)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Run with the global generators as they are; put them back.

    Example:
        >>> with kept_generators():
        ...     first = random.random()
        >>> first == random.random()
        True
    """
    with lending:
        states = GeneratorStates()
        try:
            yield
        finally:
            states.put_back()
