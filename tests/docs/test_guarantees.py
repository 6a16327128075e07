"""The guarantees page says what the code says."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout import bounds as tb
from torch_holdout.accounting import epsilon_cap
from torch_holdout.bounds import published as pb
from torch_holdout.bounds.sealed_runs import end_price, silence_price, stop_price

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("tolerance", ROOT / "docs" / "tolerance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_code_certifies(script):
    assert script.table() in PAGE


def test_the_widths_of_sealed_runs():
    rows = [(700, 200), (2000, 200), (10_000, 50), (10_000, 200), (10_000, 1000), (50_000, 200)]
    for size, m in rows:
        alone = th.plan(size=size, queries=m, runs=1).certificate.tolerance
        beside = th.plan(size=round(0.8 * size), queries=m, runs=20).certificate.tolerance
        values = th.plan(size=size, queries=m, budget=20).certificate.tolerance
        fresh = tb.hoeffding(size, 0.05)
        widths = " | ".join(f"{width:.4f}" for width in (fresh, alone, beside, values))
        assert f"| {size:,} | {m:,} | {widths} |" in PAGE


def test_the_prices_of_what_runs_say():
    assert f"evaluation 41 | {stop_price(41, 200):.2f} |" in PAGE
    assert f"best evaluation named | {end_price(200, 10):.2f} |" in PAGE
    silence = ", ".join(f"{silence_price(j, 200, 10):.3f}" for j in (50, 100, 200))
    assert f"| 0, {silence} |" in PAGE


def test_the_picture_can_be_drawn(script, tmp_path):
    script.draw(tmp_path / "tolerance.png")
    assert (tmp_path / "tolerance.png").stat().st_size > 10_000
    assert (ROOT / "docs" / "tolerance.png").stat().st_size > 10_000


def test_every_function_of_the_page_exists():
    named = re.findall(r"`bounds\.(\w+)`", PAGE)
    published = re.findall(r"`bounds\.published\.(\w+)`", PAGE)
    assert len(named + published) > 5
    assert all(name in tb.__all__ for name in named)
    assert all(name in pb.__all__ for name in published)


def test_numbers_in_the_text():
    assert f"{epsilon_cap([0.01], 100, 1e-6):.3f}" == "0.572"
    assert "0.572" in PAGE
    counted = pb.counting_fixed(10_000, queries=1000, budget=20, answers=100, failure=0.05)
    assert f"| `bounds.published.counting_fixed` | {counted + 0.5 / 99:.2f} |" in PAGE
    assert (
        f"| `bounds.published.sample_splitting` | {pb.sample_splitting(10_000, 1000, 0.05):.2f} |"
        in PAGE
    )
    assert pb.thresholdout_tolerance(10_000, failure=0.05, queries=1000, budget=20) == float("inf")
    assert f"| `bounds.published.naive_union` | {pb.naive_union(10_000, 1000, 0.05):.2f} |" in PAGE


def test_the_picture_of_the_readme_is_what_the_code_says(tmp_path):
    """One of its points anew, and the picture from all of them."""
    spec = importlib.util.spec_from_file_location("naive", ROOT / "docs" / "naive_and_guarded.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.SEEDS = range(3)
    raw, guarded, fresh = script.claims(200)
    assert all(60 < value < 69 for value in raw)  # Phi(sqrt(2 k / (pi n))) is 64 %
    assert all(abs(value - 50) < 8 for value in guarded)  # five standard errors of 1,000 flips
    assert all(abs(value - 50) < 1 for value in fresh)
    script.draw(tmp_path / "picture.png", [(raw, guarded, fresh)] * len(script.QUERIES))
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    assert (ROOT / "docs" / "naive_and_guarded.png").stat().st_size > 10_000
