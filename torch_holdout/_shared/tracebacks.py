"""Exceptions that leave without the frames they went through."""

import contextlib
import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from torch_holdout.errors import HoldoutError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_HERE = str(Path(__file__).resolve().parents[1]) + os.sep


def without_trace(action: Callable[[], _Result]) -> _Result:
    """Run ``action``; an exception leaves bare: no traceback into it, no cause, no context.

    Frames keep local variables, and some loggers print them: a raw sum, or an answer that was not
    committed. So the type and the message of our own errors pass, of others only type and place.

    Example:
        >>> without_trace(lambda: 1 // 0)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutError: ... ZeroDivisionError in <lambda>, line 1. No ...
    """
    bare: BaseException
    try:
        return action()
    except HoldoutError as error:
        bare = type(error)(*error.args)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        bare = HoldoutError(
            f"The holdout could not answer: {type(error).__name__} in {place.name}, line "
            f"{place.lineno}. No answer was given; status() tells whether one was charged. The "
            f"error's own message is withheld, because it may quote holdout data."
        )
    except (KeyboardInterrupt, SystemExit) as error:
        bare = type(error)(*error.args)
    except BaseException as error:
        bare = HoldoutError(f"The holdout could not answer: {type(error).__name__}.")
    # Outside the handlers, so that Python does not attach the original as context.
    raise bare


def with_empty_frames(action: Callable[[], _Result]) -> _Result:
    """Run code of the user's; its errors leave, but the frames of this package hold nothing.

    Those frames hold the holdout's batch, and some loggers print local variables. Our own errors
    leave with all frames below emptied, also the user's: the lines are there, the values are not.

    Example:
        >>> with_empty_frames(lambda: 1 // 0)
        Traceback (most recent call last):
            ...
        ZeroDivisionError: integer division or modulo by zero
    """
    try:
        return action()
    except BaseException as error:
        empty_frames(error)
        raise


def empty_frames(error: BaseException | None) -> None:
    """Empty the finished frames of an error and of those before it: of our own errors, all."""
    ours = isinstance(error, HoldoutError)
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if ours or frame.f_code.co_filename.startswith(_HERE):
                with contextlib.suppress(RuntimeError):  # still running
                    frame.clear()
        error = error.__cause__ or error.__context__


def errors_by_type(
    action: Callable[[], _Result], refusal: Callable[[str], HoldoutError]
) -> _Result:
    """Run code of the user's; turn its error into ``refusal(name of the error's type)``.

    Nothing else of the error passes: its message, its frames or its context may quote private data.
    Our own errors pass as they are.

    Example:
        >>> errors_by_type(lambda: {}["private"], lambda kind: HoldoutError(f"It raised {kind}."))
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutError: It raised KeyError.
    """
    try:
        return action()
    except HoldoutError:
        raise
    except Exception as error:
        kind = type(error).__name__
    # Outside the handlers, as above.
    raise refusal(kind)


def without_frames(action: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return ``action`` so that its errors leave as they are, but without the frames below.

    For code that is called with raw tensors: frames keep arguments, and some loggers print them.

    Example:
        >>> def halved(secret):
        ...     raise HoldoutError("Not a number.")
        >>> try:
        ...     without_frames(halved)("7310")
        ... except HoldoutError as error:
        ...     frames = list(traceback.walk_tb(error.__traceback__))
        >>> [frame.f_code.co_name for frame, _ in frames], "7310" in str(frames[-1][0].f_locals)
        (['<module>', 'bare'], False)
    """

    @functools.wraps(action)
    def bare(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return action(*arguments, **named)
        except BaseException as error:
            raised = error.with_traceback(None)
        raised.__cause__ = raised.__context__ = None
        del arguments, named
        raise raised

    return bare
