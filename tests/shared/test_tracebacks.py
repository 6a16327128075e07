"""An error of the user's code keeps its type only."""

import traceback

import pytest
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import HoldoutError, PartialPassError


def refusal(kind):
    return HoldoutError(f"It raised {kind}.")


def talkative():
    secret = 7310
    raise ValueError(f"the secret is {secret}")


def test_the_type_passes_and_nothing_else():
    with pytest.raises(HoldoutError, match=r"^It raised ValueError\.$") as caught:
        errors_by_type(talkative, refusal)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "7310" not in "".join(shown.format())


def test_our_own_errors_pass_as_they_are():
    error = PartialPassError("a part")

    def ours():
        raise error

    with pytest.raises(PartialPassError) as caught:
        errors_by_type(ours, refusal)
    assert caught.value is error


def test_results_and_interrupts_pass():
    def interrupted():
        raise KeyboardInterrupt

    assert errors_by_type(lambda: 3, refusal) == 3
    with pytest.raises(KeyboardInterrupt):
        errors_by_type(interrupted, refusal)


def test_twin_that_raises_inside_the_handler_is_caught():
    def twin():
        try:
            talkative()
        except ValueError as error:
            raise refusal(type(error).__name__) from None

    with pytest.raises(HoldoutError) as caught:
        twin()
    assert caught.value.__context__ is not None
