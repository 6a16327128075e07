"""Random calls of public functions, and a judge of how each may end."""

import contextlib
import functools
import importlib
import inspect
import itertools
import random
import re
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from torch_holdout.errors import HoldoutError, HoldoutWarning

from support.builders.arguments import fitting
from support.builders.hostile import OwnError, hostile, hostile_call
from support.builders.receivers import ALWAYS_GIVEN, CALLED, CHECKED_BEFORE, KEPT_CHECKS, MAKE

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "hooks"))


BINDING = re.compile(
    r"\(\) (missing \d+ required|got an unexpected keyword|got multiple values|takes .*argument)"
)


class HangError(BaseException):
    """A call did not end."""


@contextlib.contextmanager
def ends_within(seconds):
    """Interrupt what hangs, where the platform can."""

    def stop(number, frame):
        raise HangError

    before, started = signal.signal(signal.SIGALRM, stop), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)  # pytest's own, if it has one
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - time.monotonic() + started))


@dataclass
class Outcomes:
    """How calls ended, and what is wrong with some."""

    ended: Counter = field(default_factory=Counter)
    returned: Counter = field(default_factory=Counter)
    called: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)
    findings: list = field(default_factory=list)

    def run(self, path, call, limit=60.0, about=str):
        """Make one call and judge it; return how it ended, and the error if there was one."""
        self.called[path] += 1
        started, error = time.perf_counter(), None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with ends_within(limit):
                    call()
            except (Exception, HangError) as raised:
                error = raised
        self.seconds[path] += time.perf_counter() - started
        foreign = [warning.message for warning in caught if not _may_warn(warning)]
        how = _judged(error)
        if foreign and how != "finding":
            how, error = "finding", foreign[0]
        self.ended[how] += 1
        self.returned[path] += how == "returned"
        if how == "finding":
            self.findings.append(f"{path}: {type(error).__name__} {place_of(error)} {about()}")
        return how, error

    def summary(self, what, seconds):
        """Say in a few lines how calls ended."""
        total = sum(self.ended.values())
        ended = ", ".join(f"{count} {how}" for how, count in self.ended.most_common())
        fewest, most = min(self.called.values()), max(self.called.values())
        slowest = max(self.seconds, key=lambda path: self.seconds[path] / self.called[path])
        each = 1000 * self.seconds[slowest] / self.called[slowest]
        return (
            f"\n{total} calls of {what} in {seconds:.0f} s: {ended}.\n"
            f"Each was called {fewest} to {most} times; the slowest is {slowest}, {each:.0f} ms."
        )


def _judged(error):
    """How a call ended."""
    if error is None:
        return "returned"
    if isinstance(error, HoldoutError):
        return "refused"
    if isinstance(error, OwnError):
        return "the argument's own error"
    if isinstance(error, optuna.TrialPruned):
        return "pruned"
    return "Python's binding" if _is_binding(error) else "finding"


def _is_binding(error):
    """Whether Python could not bind a public function's own arguments."""
    if not isinstance(error, TypeError) or not BINDING.search(str(error)):
        return False
    place = place_of(error)
    called = place == "outside" or place.startswith("_shared/formulas.py")
    return called or "ReusableHoldout.__init__()" in str(error)  # of `open(url, **arguments)`


def _may_warn(warning):
    """Ours, and torchmetrics' own about the order of calls."""
    ours = issubclass(warning.category, HoldoutWarning)
    return ours or "was called before the ``update`` method" in str(warning.message)


def place_of(error):
    """Where in the package an error came from."""
    frames = traceback.extract_tb(error.__traceback__) if error.__traceback__ else []
    own = [frame for frame in frames if "torch_holdout/" in frame.filename]
    last = own[-1] if own else None
    return f"{last.filename.partition('torch_holdout/')[2]}:{last.lineno}" if last else "outside"


@dataclass(frozen=True)
class Target:
    """A public function, or a class, or a method of its instances."""

    path: str
    place: str
    function: Any
    owner: type | None = None

    def signature(self):
        if isinstance(self.function, property):
            return inspect.signature(lambda: None)
        try:
            return inspect.signature(self.function)
        except ValueError:  # errors are built-in classes
            return inspect.signature(lambda *messages: None)


def public_names():
    """Every public name with the object it stands for, once."""
    reference = importlib.import_module("reference")
    seen = set()
    for name in reference.public_names():
        if id(name.value) not in seen:
            seen.add(id(name.value))
            yield name.path, name.value


def targets():
    """Yield every public function, constructor, method and property."""
    for path, value in public_names():
        if not callable(value):
            continue
        name = path.rpartition(".")[2]
        name = f"ray.{name}" if "tuning.ray" in path else name
        yield Target(path, name, value)
        if inspect.isclass(value):
            for member, what in inspect.getmembers_static(value):
                if not member.startswith("_") and _is_ours(what):
                    bound = isinstance(what, (classmethod, staticmethod))
                    function = getattr(value, member) if bound else what
                    owner = None if bound else value
                    yield Target(f"{path}.{member}", f"{name}.{member}", function, owner)


def _is_ours(what):
    plain = getattr(what, "fget", None) or getattr(what, "__func__", None) or what
    home = getattr(plain, "__module__", None) or ""
    return home.startswith("torch_holdout") and (callable(plain) or isinstance(what, property))


class Draws(random.Random):
    """Random choices; fitting arguments may depend on the object that is called."""

    receiver = None


def bound(target, draws):
    """Return the function to call, on an object of its class."""
    if target.owner is None:
        return target.function
    make = MAKE.get(target.place) or MAKE[target.owner.__name__]
    draws.receiver = receiver = make(draws)
    name = target.path.rpartition(".")[2]
    if isinstance(target.function, property | functools.cached_property):
        return lambda: getattr(receiver, name)
    return getattr(receiver, name)


def may_be_hostile(target):
    """Whether a function checks its arguments itself."""
    member = target.place.partition(".")[2]
    return target.place in KEPT_CHECKS or member not in CHECKED_BEFORE


def arguments(target, draws, fits=False):
    """Draw arguments: all fitting, one hostile, or many."""
    parameters = [
        parameter
        for parameter in target.signature().parameters.values()
        if not (target.owner and parameter.name == "self")
    ]
    always = {p.name for p in parameters if f"{target.place}:{p.name}" in ALWAYS_GIVEN}
    given = [
        p for p in parameters if p.default is p.empty or p.name in always or draws.random() < 0.4
    ]
    how = 0 if fits or not may_be_hostile(target) else draws.random()
    if how < 0.4 or not given:
        bad = set()
    elif how < 0.8:
        bad = {draws.choice(given).name}
    else:
        bad = {p.name for p in given if draws.random() < 0.5}
    bad -= always
    positional, named = [], {}
    for parameter in given:
        if parameter.name in bad:
            value = hostile_call(draws) if parameter.name in CALLED else hostile(draws)
        else:
            value = fitting(target.place, parameter, draws)
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [value] if not named else []
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= _words(value)
        elif parameter.kind is parameter.POSITIONAL_ONLY or (
            not named
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and draws.random() < 0.5
            and len(positional) == parameters.index(parameter)
        ):
            positional.append(value)
        else:
            named[parameter.name] = value
    return positional, named


def _words(value):
    """Named arguments, as Python takes them."""
    return value if isinstance(value, dict) and all(isinstance(k, str) for k in value) else {}


def use(result):
    """Consume what a call returned, as users do: print it, read it, enter it."""
    if isinstance(result, contextlib.AbstractContextManager) and hasattr(result, "gen"):
        with result as entered:
            return entered
    if isinstance(result, Iterator):
        return list(itertools.islice(result, 1000))
    if type(result).__module__.startswith("torch_holdout"):
        str(result), repr(result)
    return result


def shown(positional, named):
    """Write arguments down, for a message."""
    parts = [_text(value) for value in positional]
    return ", ".join(parts + [f"{name}={_text(value)}" for name, value in named.items()])


def _text(value):
    try:
        return repr(value)[:60]
    except Exception:
        return f"<{type(value).__name__}>"
