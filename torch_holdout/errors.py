"""Errors and the one warning category; none of their texts carries a raw holdout value."""


class HoldoutError(Exception):
    """Root of every error this library raises on purpose.

    Example:
        >>> issubclass(BudgetExhaustedError, HoldoutError)
        True
    """


class InvalidArgumentError(HoldoutError, ValueError):
    """An argument is outside what the function accepts."""


class SealedValueError(HoldoutError, TypeError):
    """Something tried to look into a raw holdout value."""


class BudgetExhaustedError(HoldoutError):
    """Every release of the holdout has been spent."""


class HoldoutMismatchError(HoldoutError):
    """The holdout exists with other parameters, or its data is registered under another name."""


class PartialPassError(HoldoutError):
    """The pass did not see every holdout example exactly once; nothing was released or charged."""


class WeightsChangedError(HoldoutError):
    """The model changed while the holdout was read, or its values depend on the batch."""


class UnguardedLogError(HoldoutError):
    """A value was logged during validation without passing the door."""


class LedgerError(HoldoutError):
    """The ledger cannot be opened, read or written; nothing was released."""


class IsolationError(HoldoutError):
    """Changing one record changed other members of an ensemble than that record's own."""


class HoldoutWarning(UserWarning):
    """Something about the holdout that the user should know and that stops nothing."""
