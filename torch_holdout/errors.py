"""Errors and the one warning category; no message contains a raw holdout value."""


class HoldoutError(Exception):
    """Root of every error this library raises on purpose.

    Example:
        >>> issubclass(BudgetExhaustedError, HoldoutError)
        True
    """


class InvalidArgumentError(HoldoutError, ValueError):
    """An argument is outside what the function accepts.

    Example:
        >>> import torch_holdout as th
        >>> th.BoundedMean(1.0, 0.0)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected `low` to be smaller than `high`, but
        got low=1.0 and high=0.0. ...
    """


class SealedValueError(HoldoutError, TypeError):
    """Something tried to look into a raw holdout value.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=1)
        >>> float(holdout.accumulator("val_acc"))
        Traceback (most recent call last):
            ...
        torch_holdout.errors.SealedValueError: Expected a sealed holdout sum to go to
        `ReusableHoldout.release`; it has no value, no copy and no pickle of its own. ...
    """


class BudgetExhaustedError(HoldoutError):
    """Every release of the holdout has been spent.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.LaplaceMechanism(epsilon=0.1), budget=1)
        >>> metric = th.ReusableHoldoutMetric(holdout, "val_acc")
        >>> for _ in range(2):
        ...     metric.update(torch.ones(4, dtype=torch.bool))
        ...     _ = metric.compute(), metric.reset()
        Traceback (most recent call last):
            ...
        torch_holdout.errors.BudgetExhaustedError: The budget of holdout 'val' (1 release) is
        spent; 'val_acc' was not answered. ...
    """


class QuotaExhaustedError(BudgetExhaustedError):
    """A board has no answer left for an analyst (``scope`` "analyst"), or for any ("board").

    Raised before anything is decided: it says nothing about the submission.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.holdout.board import BoardHoldout, Feedback
        >>> board = BoardHoldout(
        ...     "memory://", name="digits", size=4, statistics={"accuracy": th.ZeroOne()},
        ...     feedback=Feedback(mode="ladder", baseline=0.25, step=0.25), budget=1, submissions=2)
        >>> _ = board.add_analyst("alpha", submissions=1, releases=1)
        >>> for content in ("aa", "bb"):
        ...     _ = board.submit(
        ...         "alpha", {"accuracy": torch.ones(4, dtype=torch.bool)}, query=content * 32)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.QuotaExhaustedError: The budget of board 'digits' (1 release) is
        spent. Nothing was answered or charged.
    """

    def __init__(self, message: str = "", scope: str = "analyst") -> None:
        super().__init__(message, scope)
        self.scope = scope

    def __str__(self) -> str:
        return str(self.args[0])


class HoldoutClosedError(HoldoutError):
    """The holdout was closed: its values are public, so nothing more can be asked.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=1)
        >>> _ = holdout.close()
        >>> holdout.run()
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutClosedError: Expected holdout 'val' to be open, but it was
        closed, for good: ...
    """


class BoardClosedError(HoldoutClosedError):
    """A board was closed: submissions are not answered any more.

    Example:
        >>> import torch_holdout as th
        >>> from torch_holdout.holdout.board import BoardHoldout, Feedback
        >>> board = BoardHoldout(
        ...     "memory://", name="digits", size=4, statistics={"accuracy": th.ZeroOne()},
        ...     feedback=Feedback(mode="sealed"), budget=0, submissions=2)
        >>> _ = board.add_analyst("alpha", submissions=1, releases=0)
        >>> _ = board.close()
        >>> board.submit("alpha", {}, query="aa" * 32)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.BoardClosedError: Expected board 'digits' to be open, but it was
        closed, for good. Nothing was answered or charged.
    """

    scope = "board"


class HoldoutMismatchError(HoldoutError):
    """The holdout exists with other parameters, or its data is registered under another name.

    Example:
        >>> import torch_holdout as th
        >>> same = {"name": "val", "size": 4, "statistics": {"val_acc": th.ZeroOne()},
        ...         "mechanism": th.Ladder(step=0.1)}
        >>> holdout = th.ReusableHoldout.open("memory://refill", budget=5, **same)
        >>> th.ReusableHoldout.open("memory://refill", budget=50, **same)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutMismatchError: Expected 'val' to be opened with the
        parameters it was created with, but: budget: stored 5, given 50. ...
    """


class PartialPassError(HoldoutError):
    """The pass did not see every holdout example exactly once; nothing was released or charged.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=1)
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, False, True]))
        >>> holdout.release("val_acc", sums, query="weights of epoch 1")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.PartialPassError: Expected a pass over all 4 examples of holdout 'val',
        each once, but got another number of values. ...
    """


class WeightsChangedError(HoldoutError):
    """The model changed while the holdout was read, or its values depend on the batch.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=1)
        >>> model = torch.nn.Dropout()  # still training: its values depend on chance
        >>> metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=model)
        >>> metric.update(torch.ones(4, dtype=torch.bool))
        Traceback (most recent call last):
            ...
        torch_holdout.errors.WeightsChangedError: Expected every example's value to depend on that
        example and the weights only, but 'the model' (Dropout) is in training mode ...
    """


class UnguardedLogError(HoldoutError):
    """A value was logged during validation without passing the door.

    Example:
        >>> import warnings, lightning as L, torch_holdout as th
        >>> from lightning.pytorch.demos.boring_classes import BoringModel
        >>> from torch_holdout.lightning import HoldoutGuard
        >>> warnings.simplefilter("ignore")
        >>> class Net(BoringModel):
        ...     def validation_step(self, batch, batch_idx):
        ...         self.log("val_acc", 0.5)
        >>> guard = HoldoutGuard(th.ReusableHoldout(
        ...     "memory://", name="val", size=64, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=1))
        >>> trainer = L.Trainer(
        ...     callbacks=[guard], logger=False, enable_progress_bar=False,
        ...     enable_model_summary=False)
        >>> trainer.validate(Net())
        Traceback (most recent call last):
            ...
        torch_holdout.errors.UnguardedLogError: Expected nothing but guarded values during
        validation, but 'val_acc' was logged in validation_step ...
    """


class LedgerError(HoldoutError):
    """The ledger cannot be opened, read or written; nothing was released.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> Ledger("sqlite:////no/such/folder/holdout.db").names()
        Traceback (most recent call last):
            ...
        torch_holdout.errors.LedgerError: Expected a ledger file at
        /no/such/folder/holdout.db, but that is not a file. Give the path that is in the
        run's URL after sqlite:///.
    """


class BoardRefusedError(HoldoutError):
    """A board refuses a request: the token, the layout, the rate; repeating it changes nothing.

    Attributes:
        problem: Which kind of refusal the board names, e.g. ``"layout"``; empty if none.

    Example:
        >>> raise BoardRefusedError("Expected another layout.", "layout")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.BoardRefusedError: Expected another layout.
    """

    def __init__(self, message: str = "", problem: str = "") -> None:
        super().__init__(message, problem)
        self.problem = problem

    def __str__(self) -> str:
        return str(self.args[0])


class BoardUnreachableError(HoldoutError):
    """A board did not answer; the same request can be repeated, it is charged once.

    Example:
        >>> import torch_holdout as th
        >>> th.remote("http://127.0.0.1:9/boards/digits", wait=0).status()
        Traceback (most recent call last):
            ...
        torch_holdout.errors.BoardUnreachableError: Expected an answer of
        http://127.0.0.1:9/boards/digits, but ...
    """


class IsolationError(HoldoutError):
    """Changing one record changed more of an ensemble than that record's own member.

    Example:
        >>> issubclass(IsolationError, HoldoutError)  # raised by verify_isolation
        True
    """


class HoldoutWarning(UserWarning):
    """Something about the holdout that the user should know and that stops nothing.

    Example:
        >>> issubclass(HoldoutWarning, HoldoutError)  # it can be filtered, and stops nothing
        False
    """
