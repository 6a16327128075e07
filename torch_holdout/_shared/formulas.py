"""Public functions of numbers: any kind goes in, and what cannot be computed is refused."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from torch_holdout._shared.checks import plain_number
from torch_holdout.errors import HoldoutError, InvalidArgumentError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def formula(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a function compute with Python's own numbers, and refuse what leaves double precision.

    Example:
        >>> import math
        >>> formula(math.exp)(1000.0)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected arguments for which `exp` can be
        computed in double precision, but they lead to a number beyond it. Use less extreme ones.
    """

    @wraps(function)
    def computed(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        plain = [plain_number(argument) for argument in arguments]
        own = {name: plain_number(argument) for name, argument in named.items()}
        try:
            return function(*plain, **own)
        except HoldoutError:
            raise
        except (ArithmeticError, ValueError) as error:
            raise InvalidArgumentError(
                f"Expected arguments for which `{function.__name__}` can be computed in double "
                f"precision, but they lead to a number beyond it. Use less extreme ones."
            ) from error

    return computed
