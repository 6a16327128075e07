"""A number that depends on private data and says so."""

from typing import NoReturn, final

from torch_holdout.errors import SealedValueError


@final
class PrivateValue:
    """A float that is not shown, logged, compared, stored or computed with by accident.

    A data-dependent epsilon is smaller than the one that holds for all data *because* of what the
    data is: publishing it, or stopping when it reaches a limit, leaks and is not covered by it.

    Example:
        >>> value = PrivateValue(1.25, "epsilon of these votes")
        >>> value
        <private value: epsilon of these votes>
        >>> f"{value:.2f}"
        Traceback (most recent call last):
            ...
        torch_holdout.errors.SealedValueError: ...
        >>> value.reveal()
        1.25
    """

    __slots__ = ("_value", "meaning")

    def __init__(self, value: float, meaning: str) -> None:
        self._value = value
        self.meaning = meaning

    def reveal(self) -> float:
        """Return the number, on purpose; it must not be published."""
        return self._value

    def __repr__(self) -> str:
        return f"<private value: {self.meaning}>"

    def __copy__(self) -> "PrivateValue":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "PrivateValue":
        return self

    def _refuse(self, *_: object) -> NoReturn:
        raise SealedValueError(
            "Expected a private value to stay unpublished: it depends on private data. Where that "
            "is meant, call reveal(); for a number that may be shown use status()."
        )

    __float__ = __int__ = __index__ = __complex__ = __bool__ = __array__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __round__ = __neg__ = __abs__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = _refuse
