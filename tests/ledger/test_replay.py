"""The replay of an account, against counters, open rounds and hashes that are computed here."""

import hashlib
import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout.ledger.replay import holdout_problems, records_problems

UNITS = (10, 20, 30)


def chain_of(name, contents):
    """Return the rows with position and chain, and the last link."""

    def link(previous, numbered):
        position, content = numbered
        text = json.dumps({"position": position, **dict(sorted(content.items()))})
        text = text.replace(", ", ",").replace(": ", ":")  # no value contains either
        return hashlib.sha256((previous + text).encode()).hexdigest()

    start = hashlib.sha256(name.encode()).hexdigest()
    links = list(accumulate(enumerate(contents, 1), link, initial=start))
    rows = [
        {**content, "position": position, "chain": links[position]}
        for position, content in enumerate(contents, 1)
    ]
    return rows, links[-1]


query = st.fixed_dictionaries(
    {
        "statistic": st.just("val_acc"),
        "query": st.sampled_from("abc"),
        "attempt": st.just(1),
        "kind": st.sampled_from(["release", "guess"]),
        "grid_index": st.none() | st.integers(0, 32),
        "value": st.floats(0, 1),
        "compared": st.booleans(),
        "opened": st.booleans(),
        "units": st.sampled_from(UNITS),
        "charge": st.none() | st.integers(0, 10**12),
        "seeded": st.booleans(),
        "asked_at": st.just("2026-01-01T00:00:00+00:00"),
        "version": st.just("0.1.0"),
    }
)
charge = st.fixed_dictionaries(
    {
        "purpose": st.just("prediction"),
        "detail": st.just("{}"),
        "seeded": st.booleans(),
        "charge": st.integers(0, 10**12),
        "queries": st.integers(0, 9),
        "variation": st.integers(0, 10**6),
        "asked_at": st.just("2026-01-01T00:00:00+00:00"),
        "version": st.just("0.1.0"),
    }
)


def holdout_of(contents, spare):
    """Return account, rows and open rounds; by positions, where the replay walks the rows."""
    rows, last = chain_of("val", contents)
    released = [row["position"] for row in rows if row["kind"] == "release"]
    budget = len(released) + spare
    account = {
        "name": "val",
        "chain": last,
        "budget": budget,
        "registration": json.dumps({"statistics": {"val_acc": {"units": 10}}, "budget": budget}),
        "queries": len(rows),
        "releases": len(released),
        "rounds": len([row for row in rows if row["opened"]]),
        "spent": sum(row["charge"] for row in rows if row["charge"] is not None),
        "last_release": max(released, default=0),
    }

    def latest(units, chosen):
        return max((r["position"] for r in rows if r["units"] == units and chosen(r)), default=0)

    is_open = {
        units: latest(units, lambda r: r["opened"])
        > latest(units, lambda r: r["kind"] == "release")
        for units in UNITS
    }
    return account, rows, {units for units in UNITS if is_open[units] and spare}


@given(st.lists(query, max_size=8), st.integers(0, 2), st.sampled_from([-1, 1]))
def test_a_holdout(contents, spare, off):
    account, rows, secrets = holdout_of(contents, spare)
    assert list(holdout_problems(account, rows, lambda: secrets)) == []
    for name in ("queries", "releases", "rounds", "spent", "last_release"):
        wrong = {**account, name: account[name] + off}
        (problem,) = holdout_problems(wrong, rows, lambda: secrets)
        assert problem == (None, f"the counter {name!r} does not agree with the rows")
    for units in UNITS:
        (problem,) = holdout_problems(account, rows, lambda: secrets ^ {units})  # noqa: B023
        assert f"{units} units" in problem[1]


@given(st.lists(charge, max_size=8), st.sampled_from([-1, 1]))
def test_records(contents, off):
    rows, last = chain_of("patients", contents)
    sums = {name: sum(row[name] for row in rows) for name in ("queries", "variation")}
    spent = sum(row["charge"] for row in rows)
    account = {"name": "patients", "chain": last, "charges": len(rows), "spent": spent, **sums}
    account["capacity"] = spent
    assert list(records_problems(account, rows)) == []
    for name in ("charges", "queries", "spent", "variation"):
        (problem,) = records_problems({**account, name: account[name] + off}, rows)
        assert problem == (None, f"the counter {name!r} does not agree with the rows")
    over = list(records_problems({**account, "capacity": spent - 1}, rows))
    assert over == [(None, "more was charged than the capacity allows")]


@pytest.mark.parametrize("field", ["value", "charge", "asked_at"])
@given(contents=st.lists(query, min_size=2, max_size=5), data=st.data())
def test_twin_an_edited_row_breaks_the_chain(field, contents, data):
    account, rows, secrets = holdout_of(contents, spare=1)
    place = data.draw(st.integers(0, len(rows) - 1))
    rows[place] = {**rows[place], field: {"value": 2.0, "charge": None, "asked_at": "x"}[field]}
    if field == "charge" and contents[place]["charge"] is None:
        return
    problems = list(holdout_problems(account, rows, lambda: secrets))
    assert problems[0] == (
        place + 1,
        "edited, inserted or out of order: it does not follow the row before",
    )
