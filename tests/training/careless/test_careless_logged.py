"""Careless code beside a ``LoggedMean``: refused, or it finds nothing raw; live and sealed."""

import pytest
import torch_holdout as th

from support.builders.guarded import NAMESPACES
from support.oracles.leaks import files_below, raw_hits
from training.careless.logged_means import REFUSED, SILENT
from training.careless.patterns import BATCH, holdout, raw_values
from training.careless.runs import entries, messages, run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("quiet_lightning"),
    pytest.mark.filterwarnings("ignore"),
]
STATISTICS = {"val_loss": th.LoggedMean(0.0, 1.0, batch_size=BATCH)}


def logged_run(pattern, namespace, folder, *, sealed=False, **options):
    if not sealed:
        account = holdout(statistics=STATISTICS)
        return run(pattern, namespace, folder, account=account, **options)
    account = holdout(statistics=STATISTICS, mechanism=th.Sealed(evaluations=10), budget=1)
    stop = th.Patience("val_loss", patience=5)
    return run(pattern, namespace, folder, account=account, stop=stop, **options)


def by_id(patterns):
    return pytest.mark.parametrize("pattern", patterns, ids=lambda pattern: pattern.id)


@pytest.mark.soak
@pytest.mark.parametrize("sealed", [False, True], ids=["live", "sealed"])
@pytest.mark.parametrize(
    ("pattern", "namespace", "sanity"), entries(REFUSED, lambda pattern: pattern.id)
)
def test_it_is_refused_before_anything_leaves(pattern, namespace, sanity, sealed, tmp_path):
    found = logged_run(pattern, namespace, tmp_path, sanity=sanity, sealed=sealed)
    assert type(found.error).__name__ == pattern.raises, found.error or "it went through"
    said = str(found.error)
    assert sealed or [name for name in pattern.names if name not in said] == []
    assert not pattern.lines or any(line in said for line in pattern.lines)
    assert raw_hits(messages(found.error), raw_values()) == []
    assert found.hits == []
    assert found.queries == 0


@pytest.mark.soak
@pytest.mark.parametrize("sealed", [False, True], ids=["live", "sealed"])
@pytest.mark.parametrize(
    ("pattern", "namespace", "sanity"), entries(SILENT, lambda pattern: pattern.id)
)
def test_it_runs_and_finds_nothing(pattern, namespace, sanity, sealed, tmp_path):
    found = logged_run(pattern, namespace, tmp_path, sanity=sanity, sealed=sealed)
    assert found.error is None
    assert found.hits == []
    assert raw_hits([files_below(tmp_path)], raw_values()) == []
    assert sealed or found.queries == 2


@by_id([pattern for pattern in [*REFUSED, *SILENT] if pattern.leaks])
def test_unguarded_the_raw_value_is_found(pattern, tmp_path):
    found = run(pattern, NAMESPACES[0], tmp_path, guarded=False)
    assert found.published or raw_hits([files_below(tmp_path)], raw_values())
