"""Random operations on live objects: what is refused charges nothing and tells nothing.

Raw values are spread over a wide range with a mean that no message could contain by chance.
"""

import copy
import functools
import pickle
import time
import warnings

import pytest
import torch
import torch_holdout as th
from torch_holdout.ledger import Ledger

from support.builders.hostile import hostile
from support.builders.mechanisms import MECHANISMS, guess_of
from support.builders.predictors import LABELS, make
from support.machines.fuzzing import Draws, Outcomes
from support.machines.soak import soak
from support.oracles.leaks import raw_hits

SEQUENCES, STEPS = soak(1_000, 25), 20
SIZE = 50
VALUES = torch.linspace(0.0, 1.0, SIZE, dtype=torch.float64) ** 3 * 0.9371
RAW = [VALUES.mean().item(), VALUES.sum().item(), *VALUES[10:].tolist()]


def strange(draws):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about tensors nobody should make
        return hostile(draws)


# A baseline is one statistic's.
OF_ANY_STATISTIC = sorted(name for name in MECHANISMS if "baseline" not in name)


def holdout_of(draws):
    return th.ReusableHoldout(
        "memory://",
        name="val",
        size=SIZE,
        statistics={"loss": th.BoundedMean(0.0, 1.0)},
        mechanism=MECHANISMS[draws.choice(OF_ANY_STATISTIC)],
        budget=draws.choice((1, 3, 9)),
    )


def booked(address):
    """What every account of a ledger has been charged."""
    ledger = Ledger(address)
    asked = [ledger.summary(account) for account in ledger.accounts().values()]
    used = [ledger.records_summary(account) for account in ledger.records_accounts().values()]
    return (
        [(one.queries, one.releases, one.spent) for one in asked if one.queries],
        [(one.queries, one.charges, one.spent) for one in used if one.queries],
    )


def full(draws, holdout):
    sums = holdout.accumulator("loss")
    sums.update(VALUES.roll(draws.randrange(SIZE)))
    return sums


def array_of(draws):
    """A whole pass, or a part of one, in some kind of array."""
    values = VALUES[: draws.choice((SIZE, SIZE, SIZE // 2))]
    return draws.choice((values, values.numpy(), values.tolist(), tuple(values.tolist())))


def sums_of(draws, holdout):
    """A whole pass, half of one, one with strange values, or no pass at all."""
    kind = draws.randrange(6)
    if kind == 0:
        return strange(draws)
    sums = holdout.accumulator("loss")
    for _ in range(draws.choice((1, 1, 1, 2)) if kind < 3 else 0):
        sums.update(VALUES[: draws.choice((SIZE, SIZE // 2, 7))])
    return sums if kind < 3 else full(draws, holdout)


def query_of(draws):
    return draws.choice(("first", "second", f"model {draws.randrange(9)}", None)) or strange(draws)


def guess_for(draws, holdout):
    if draws.random() < 0.2:
        return {"guess": strange(draws)}
    return guess_of(holdout.mechanism)


HOLDOUT = {
    "release": lambda d, h: h.release(
        "loss", full(d, h), query=f"model {d.random()}", **guess_of(h.mechanism)
    ),
    "odd release": lambda d, h: h.release(
        d.choice(("loss", "loss", strange(d))),
        sums_of(d, h),
        query=query_of(d),
        fresh=d.choice((False, True, strange(d))),
        **guess_for(d, h),
    ),
    "release_all": lambda d, h: h.release_all(
        d.choice(({"loss": sums_of(d, h)}, strange(d))), query=query_of(d)
    ),
    "ask": lambda d, h: h.ask(
        "loss", array_of(d), query=f"model {d.random()}", **guess_of(h.mechanism)
    ),
    "odd ask": lambda d, h: h.ask(
        d.choice(("loss", {"loss": array_of(d)}, strange(d))),
        d.choice((array_of(d), strange(d), None)),
        query=query_of(d),
        fresh=d.choice((False, True, strange(d))),
        **guess_for(d, h),
    ),
    "odd update": lambda d, h: h.accumulator("loss").update(strange(d)),
    "read sums": lambda d, h: d.choice((float, int, bool, copy.copy, pickle.dumps, str))(
        full(d, h)
    ),
    "recall": lambda d, h: h.recall(d.choice(("loss", strange(d))), query_of(d)),
    "status": lambda d, h: str(h.status()),
    "certificate": lambda d, h: str(h.certificate(d.choice((0.05, strange(d))))),
    "intervals": lambda d, h: h.intervals(d.choice((0.05, strange(d)))),
    "interval": lambda d, h: h.interval(
        d.choice((h.recall("loss", query_of(d)), strange(d))), d.choice((0.05, strange(d)))
    ),
    "copy": lambda d, h: copy.deepcopy(h).release(
        "loss", full(d, h), query=query_of(d), **guess_for(d, h)
    ),
    "pickle": lambda d, h: pickle.loads(pickle.dumps(h)).status(),
    "repr": lambda d, h: repr(h),
}


def metric_of(draws):
    model = draws.choice((None, torch.nn.Linear(2, 1).eval()))
    return th.ReusableHoldoutMetric(
        holdout_of(draws), "loss", model=model, on_exhausted=draws.choice(("raise", "freeze"))
    )


def pass_of(draws, metric):
    """A whole pass in batches, with a guess where one is wanted."""
    metric.reset()
    if metric.holdout.mechanism.wants_guess():
        metric.update_train(torch.full((10,), 0.25))
    for batch in VALUES.split(draws.choice((7, SIZE))):
        metric.update(batch)
    return metric.compute()


METRIC = {
    "pass": pass_of,
    "part": lambda d, m: m.update(VALUES[: d.choice((0, 1, 30))]),
    "odd update": lambda d, m: m.update(strange(d)),
    "odd arguments": lambda d, m: m.update(VALUES, strange(d)),
    "odd training update": lambda d, m: m.update_train(strange(d)),
    "forward": lambda d, m: m(d.choice((VALUES, VALUES[:9]))),
    "compute": lambda d, m: m.compute(),
    "reset": lambda d, m: m.reset(),
    "clone": lambda d, m: m.clone().update(VALUES),
    "copy": lambda d, m: copy.deepcopy(m).compute(),
    "pickle": lambda d, m: pickle.loads(pickle.dumps(m)).compute(),
    "state": lambda d, m: m.load_state_dict(m.state_dict()),
    "repr": lambda d, m: repr(m),
    "merge": lambda d, m: m.merge_state(m),
}


def predictor_of(draws):
    return make(
        draws.choice(LABELS),
        on_exhausted=draws.choice(("raise", "abstain")),
        cache=draws.choice((0, 3)),
        track_private_loss=False,
    )


def inputs_of(draws):
    rows = draws.choice((1, 5, 0, 400))
    return draws.choice((torch.full((rows, 4), draws.choice((0.5, float("nan")))), strange(draws)))


PREDICTOR = {
    "ask": lambda d, p: p(torch.zeros(d.choice((1, 5, 200)), 4)),
    "odd": lambda d, p: p(inputs_of(d)),
    "tenant": lambda d, p: p(torch.zeros(2, 4), tenant=strange(d)),
    "label": lambda d, p: p.label(inputs_of(d)),
    "status": lambda d, p: str(p.status()),
    "plan": lambda d, p: str(p.plan()),
    "epsilon": lambda d, p: p.private_epsilon(d.choice((1e-5, strange(d)))),
    "validate": lambda d, p: p.validate(strange(d), "loss", strange(d), query=query_of(d)),
    "copy": lambda d, p: copy.deepcopy(p)(inputs_of(d)),
    "pickle": lambda d, p: pickle.dumps(p),
    "change": lambda d, p: setattr(p, d.choice(("ensemble", "mechanism")), strange(d)),
}
KINDS = {
    "holdout": (holdout_of, HOLDOUT, lambda holdout: holdout.address),
    "metric": (metric_of, METRIC, lambda metric: metric.holdout.address),
    "predictor": (predictor_of, PREDICTOR, lambda predictor: predictor.status().ledger),
}


def messages(error):
    """What an error and those behind it say."""
    seen = []
    while error is not None and len(seen) < 10:
        seen.append(str(error))
        error = error.__cause__ or error.__context__
    return seen


def walk(kind, sequences, **more):
    """Make random sequences of operations; ``more`` adds some of them."""
    create, operations, address = KINDS[kind]
    operations = operations | more
    outcomes, charged, told = Outcomes(), [], []
    for sequence in range(sequences):
        draws = Draws(f"{kind} {sequence}")
        subject = create(draws)
        for step in range(STEPS):
            name, before = draws.choice(sorted(operations)), booked(address(subject))
            operation = functools.partial(operations[name], draws, subject)
            where = f"sequence {sequence}, step {step}"
            how, error = outcomes.run(f"{kind} {name}", operation, about=lambda: where)  # noqa: B023
            if how != "returned" and booked(address(subject)) != before:
                charged.append(f"{name} in {where}")
            if any(raw_hits(text, RAW) for text in messages(error)):
                told.append(f"{name} in {where}")
    return outcomes, charged, told


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 300))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_charges_nothing_and_tells_nothing(kind):
    started = time.perf_counter()
    outcomes, charged, told = walk(kind, SEQUENCES)
    print(outcomes.summary(f"a live {kind}", time.perf_counter() - started))
    assert (outcomes.findings, charged, told) == ([], [], [])
    assert set(outcomes.returned) == {f"{kind} {name}" for name in KINDS[kind][1]}


def test_an_operation_that_charges_or_tells_before_it_refuses_is_found():
    def charges(draws, holdout):
        HOLDOUT["release"](draws, holdout)
        raise th.HoldoutError("Nothing was charged.")

    def tells(draws, holdout):
        raise th.HoldoutError(f"Expected another mean than {RAW[0]}.")

    _, charged, told = walk("holdout", 5, charges=charges, tells=tells)
    assert any(name.startswith("charges") for name in charged)
    assert {name.split()[0] for name in told} == {"tells"}
