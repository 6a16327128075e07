"""Charges of a holdout, against exact arithmetic and against stored rows."""

import math
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout.accounting.picos import PICO, steps_in_picos
from torch_holdout.ledger.registration import StoredRegistration

ASSETS = Path(__file__).parent.parent / "assets"


@given(st.floats(min_value=1e-15, max_value=1e6), st.integers(min_value=0, max_value=3))
def test_a_step_is_rounded_up_to_a_whole_pico(step, steps):
    exact = Fraction(step) * 10**12
    lost = exact / 2**52  # the product is rounded to a float before it is rounded up
    charge = steps_in_picos(step, steps)
    assert steps * (exact - lost) <= charge <= steps * (exact + 1 + lost)


def test_what_stored_rows_hold_can_never_change():
    assert PICO == 10**12
    assert steps_in_picos(0.017, 2) == 2 * 17_000_000_001  # the product is a little above 0.017
    assert steps_in_picos(0.1, 3) == 300_000_000_000
    assert steps_in_picos(0.0, 1) == 0
    assert steps_in_picos(math.inf, 1) is None


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_charges_of_released_versions_are_found_again(version):
    connection = sqlite3.connect(f"file:{ASSETS}/ledger_v{version}.db?immutable=1", uri=True)
    rows = connection.execute(
        "SELECT h.registration, q.units, q.kind = 'release', q.opened, q.charge "
        "FROM th_queries q JOIN th_holdouts h ON h.id = q.holdout_id"
    ).fetchall()
    connection.close()
    assert rows
    for text, units, released, opened, charge in rows:
        mechanism = StoredRegistration.parse(text).mechanism()
        assert steps_in_picos(mechanism.charge_per_step(units), released + opened) == charge
