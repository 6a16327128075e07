"""What the report and the command say about ratios: open and closed, claimed and not."""

import json

import pytest
import torch
import torch_holdout as th
from torch_holdout.cli import app
from torch_holdout.ledger import Ledger
from torch_holdout.report import page, summarise
from torch_holdout.report.verdict import not_promised, verdict
from typer.testing import CliRunner

SIZE = 300


def account(url, smallest, mechanism):
    loss = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(smallest, 128), 0.0, 10.0)
    holdout = th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"ppl": loss}, mechanism=mechanism, budget=3
    )
    tokens = 64 + torch.arange(SIZE) % 65
    sums = holdout.accumulator("ppl")
    sums.update(1.5 * tokens * (0.5 + tokens / 128), tokens)
    if mechanism.shows_values:
        holdout.release("ppl", sums, query="a")
    else:
        with holdout.run() as run:
            run.evaluate({"ppl": sums}, query="a")
    return holdout


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def certificate_of(url):
    (found,) = summarise(Ledger(url)).holdouts
    return {remark.about: remark.text for remark in verdict(found)}.get("Certificate", "")


@pytest.mark.parametrize("mechanism", [th.Ladder(step=0.01), th.Sealed(evaluations=4)])
def test_a_denominator_from_0_is_said_with_its_remedy(url, mechanism):
    holdout = account(url, 0, mechanism)
    assert "Nothing is claimed for ppl as published before closing" in certificate_of(url)
    assert "or close this one" in certificate_of(url)
    holdout.close()
    assert "close this one" not in certificate_of(url)
    if mechanism.shows_values:
        assert "report what closing has shown" in certificate_of(url)


@pytest.mark.parametrize("mechanism", [th.Ladder(step=0.01), th.Sealed(evaluations=4)])
def test_a_known_denominator_has_a_certificate(url, mechanism):
    account(url, 64, mechanism)
    assert "denominator" not in certificate_of(url)
    (found,) = summarise(Ledger(url)).holdouts
    (ppl,) = found.statistics
    assert (ppl.ratio, ppl.unclaimed, ppl.blocks) == (True, False, None)
    assert ppl.tolerance == found.certificate.user_tolerance["ppl"] < 10
    assert any("quotient of the two expectations" in limit for limit in not_promised(found))
    assert "quotient of the two expectations" in page(summarise(Ledger(url)))


def test_json_and_the_command_show_both_parts_at_closing(url, tmp_path):
    value = account(url, 64, th.Sealed(evaluations=4)).close().best
    path = str(tmp_path / "holdout.db")
    shown = CliRunner().invoke(app, ["status", path]).output
    assert "the quotient of ppl numerator" in shown
    (found,) = json.loads(CliRunner().invoke(app, ["report", path, "--json"]).output)["holdouts"]
    (stored,) = found["closing"]["values"]
    assert stored["value"] == value.value
    assert [part["value"] for part in stored["parts"]] == [part.value for part in value.parts]
    rows = CliRunner().invoke(app, ["report", path, "--csv"]).output.splitlines()
    assert len(rows) == 2  # the heading, and one value
    assert f",exact,{value.value},{value.low},{value.high}," in rows[1]
    verified = CliRunner().invoke(app, ["verify", path])
    assert verified.exit_code == 0
