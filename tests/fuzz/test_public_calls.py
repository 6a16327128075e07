"""Random calls of everything public: each returns, or raises an error of the library.

The n-th call is the same in every run, so a finding is repeated with ``one_call(n)``.
"""

import time
import warnings

import pytest
import torch_holdout as th

from support.builders.receivers import NEVER_RETURNS, reason_to_skip
from support.machines.fuzzing import Draws, Outcomes, arguments, bound, shown, targets, use
from support.machines.soak import soak

TARGETS = [target for target in targets() if reason_to_skip(target.place) is None]
CALLS = soak(100_000, 3_000)
TRIES = 100  # more calls, with fitting arguments, of what has not returned yet


def one_call(number, outcomes, target=None, fits=False):
    """Make the n-th call."""
    target = target or TARGETS[number % len(TARGETS)]
    draws = Draws(f"call {number}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about tensors nobody should make
        function = bound(target, draws)
        positional, named = arguments(target, draws, fits=fits)

    def call():
        result = function(*positional, **named)
        return result if isinstance(target.function, type) else use(result)

    outcomes.run(target.path, call, about=lambda: f"call {number}: {shown(positional, named)}")


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 300))
def test_every_public_name_answers_or_refuses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcomes, started = Outcomes(), time.perf_counter()
    for number in range(CALLS):
        one_call(number, outcomes)
    missing = [t for t in TARGETS if not outcomes.returned[t.path] and t.place not in NEVER_RETURNS]
    for target in missing:
        for number in range(TRIES):
            if not outcomes.returned[target.path]:
                one_call(CALLS + number, outcomes, target, fits=True)
    print(outcomes.summary(f"{len(TARGETS)} public names", time.perf_counter() - started))
    assert "\n".join(outcomes.findings) == ""
    assert "\n".join(t.path for t in missing if not outcomes.returned[t.path]) == ""
    assert min(outcomes.called[target.path] for target in TARGETS) >= CALLS // len(TARGETS)


def test_what_is_left_out_is_there_and_has_a_reason():
    places = {target.place for target in targets()}
    assert set(NEVER_RETURNS) <= places
    assert len(TARGETS) > 400
    skipped = {target.place: reason_to_skip(target.place) for target in targets()}
    assert {"ReusableHoldout.release", "plan", "fingerprint"} <= {
        p for p in skipped if not skipped[p]
    }


def overflows():
    return 2.0**10000


def warns():
    warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)


def hangs():
    while True:
        pass


@pytest.mark.parametrize("broken", [overflows, warns, hangs, lambda: None.size, lambda: len(3)])
def test_a_broken_function_is_found(broken):
    outcomes = Outcomes()
    outcomes.run("broken", broken, limit=0.05)
    assert len(outcomes.findings) == 1
    assert outcomes.ended == {"finding": 1}


def test_refusals_and_wrong_signatures_are_not_findings():
    outcomes = Outcomes()
    outcomes.run("hoeffding", lambda: th.bounds.hoeffding("x", 0.05))
    outcomes.run("hoeffding", lambda: th.bounds.hoeffding(10))
    outcomes.run("hoeffding", lambda: th.bounds.hoeffding(10, 0.05))
    assert outcomes.findings == []
    assert outcomes.ended == {"refused": 1, "Python's binding": 1, "returned": 1}
