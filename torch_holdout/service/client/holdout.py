"""A board as a holdout for the guard and the metric."""

from typing import final


@final
class RemoteHoldout:
    """The door of a board in another process: rows of predictions in, answers out."""
