"""Warnings of one thread, and which of them say that a metric is undefined on its rows.

``warnings.catch_warnings`` changes the whole process: it would count what other threads warn of,
and be undone by theirs. Here a filter stands in front of the process's own that matches in threads
that listen, and nowhere else; other threads keep their filters.
"""

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

Heard = list[tuple[type[Warning], str]]

# How sklearn and scipy name them; whatever their text.
_UNDEFINED = {"UndefinedMetricWarning", "ConstantInputWarning"}
# What sklearn, torchmetrics, numpy and torch say where a value is undefined or a placeholder.
_SAYS_UNDEFINED = re.compile(
    r"undefined|(?:ill|not|not well)[- ]defined|meaningless|\bnan\b|invalid value"
    r"|zero[ _]?division|divi\w+ by zero|denominator|degrees? of freedom|\bempty\b"
    r"|(?:one|single) (?:class|label)|no (?:positive|negative|true|predicted)"
    r"|close to zero|(?:is|are) constant|at least two values",
    re.IGNORECASE,
)
_ABOUT_CODE = (
    DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning,
    SyntaxWarning, BytesWarning, EncodingWarning,
)  # fmt: skip


def says_undefined(category: type[Warning], text: str) -> bool:
    """Whether a warning says that a value is undefined; deprecations and the like never do.

    Example:
        >>> says_undefined(UserWarning, "No positive samples in targets, ...")
        True
        >>> says_undefined(RuntimeWarning, "invalid value encountered in divide")
        True
        >>> says_undefined(FutureWarning, "average=None will be undefined in version 2")
        False
    """
    if issubclass(category, _ABOUT_CODE):
        return False
    named = any(base.__name__ in _UNDEFINED for base in category.__mro__)
    return named or _SAYS_UNDEFINED.search(text) is not None


_ANY_TEXT, _NO_TEXT = re.compile("").match, re.compile(r"(?!)").match


class _TextHere(threading.local):
    """The filter's pattern: matches any text in a thread that listens, and none in others.

    In C throughout: a filter that runs Python code lets another thread change the list of filters
    while it is being read.
    """

    match: Callable[[str], Any] = _NO_TEXT

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _TextHere, ()  # filters are sent to workers


class _Listening(threading.local):
    heard: Heard | None = None


_here, _text = _Listening(), _TextHere()
_FILTER: Any = ("always", _text, Warning, None, 0)
_lock = threading.Lock()
_listeners = 0
_torch_always = False
_show: Any = None


@contextmanager
def heard_warnings() -> Iterator[Heard]:
    """Collect the warnings of this thread in the block; none of them is shown.

    It does not matter which filters are set, or whether a warning was given before.

    Example:
        >>> with heard_warnings() as heard:
        ...     warnings.warn("only one class", stacklevel=1)
        >>> heard
        [(<class 'UserWarning'>, 'only one class')]
    """
    outer = _here.heard
    _listen()
    heard: Heard = []
    _here.heard = heard
    _text.match = _ANY_TEXT
    try:
        yield heard
    finally:
        _here.heard = outer
        if outer is None:
            del _text.match
        _stop_listening()


def still_in_front() -> bool:
    """Whether no other thread has put a filter before the one that listens."""
    return bool(warnings.filters) and warnings.filters[0] is _FILTER


def _listen() -> None:
    global _listeners, _torch_always, _show
    with _lock:
        _listeners += 1
        if _listeners == 1:
            _torch_always, _show = torch.is_warn_always_enabled(), warnings._showwarnmsg  # type: ignore[attr-defined]
            torch.set_warn_always(True)  # or a block would depend on those before it
            warnings._showwarnmsg = _taken_down  # type: ignore[attr-defined]
        if not still_in_front():
            _remove_filter()
            warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]
        _forget_what_was_shown()


def _stop_listening() -> None:
    global _listeners
    with _lock:
        _listeners -= 1
        if _listeners == 0:
            _remove_filter()
            torch.set_warn_always(_torch_always)
            if warnings._showwarnmsg is _taken_down:  # type: ignore[attr-defined]
                warnings._showwarnmsg = _show  # type: ignore[attr-defined]
            _forget_what_was_shown()


def _remove_filter() -> None:
    while _FILTER in warnings.filters:  # also one that another thread's copy brought back
        warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]


def _taken_down(message: Any) -> None:
    """Take a warning down in a thread that listens; show it in others."""
    if _here.heard is not None:
        _here.heard.append((message.category, str(message.message)))
        return
    _forget_what_was_shown()  # this place has warned now, and another thread may listen to it
    _show(message)


def _forget_what_was_shown() -> None:
    """Make the registries of places that have warned invalid, as any change of filters does."""
    with getattr(warnings, "_lock", None) or nullcontext():
        for name in ("_filters_mutated", "_filters_mutated_lock_held"):  # until and from 3.14
            getattr(warnings, name, lambda: None)()
