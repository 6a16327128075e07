"""Careless code around a sealed run is refused, or finds nothing; so is the whole catalogue."""

import pytest
import torch_holdout as th

from support.builders.guarded import NAMESPACES
from support.machines.soak import soak
from support.oracles.leaks import raw_hits
from training.careless.careless import PATTERNS
from training.careless.patterns import SIZE, holdout, raw_values
from training.careless.runs import entries, messages, run
from training.careless.sealed import REFUSED, SILENT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("quiet_lightning"),
    pytest.mark.filterwarnings("ignore"),
]
FITS = [pattern for pattern in PATTERNS if pattern.run == "fit"]


def sealed_run(pattern, namespace, folder, **options):
    account = holdout(mechanism=th.Sealed(evaluations=10), budget=1)
    stop = th.Patience("val_loss", patience=5)
    return run(pattern, namespace, folder, account=account, stop=stop, **options), account


def by_id(patterns):
    return pytest.mark.parametrize("pattern", patterns, ids=lambda pattern: pattern.id)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("pattern", "namespace", "sanity"), entries(REFUSED, lambda pattern: pattern.id)
)
def test_it_is_refused_with_what_to_write(pattern, namespace, sanity, tmp_path):
    found, _ = sealed_run(pattern, namespace, tmp_path, sanity=sanity)
    assert type(found.error).__name__ == pattern.raises, found.error
    assert [name for name in pattern.names if name not in str(found.error)] == []
    assert raw_hits(messages(found.error), raw_values()) == []
    assert found.hits == []


@by_id(SILENT)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_it_finds_nothing(pattern, namespace, tmp_path):
    found, account = sealed_run(pattern, namespace, tmp_path)
    assert found.error is None
    assert found.hits == []
    closed = [value.value for value in account.close().values]
    hidden = [closed[0], closed[0] * SIZE, closed[0] * SIZE * 65536]  # as it is kept: quantised
    assert raw_hits(found.seen, hidden) == []
    assert raw_hits([closed], hidden)


@pytest.mark.soak
@by_id(FITS[:: soak(1, 12)])
def test_the_catalogue_is_refused_in_a_sealed_run_too(pattern, tmp_path):
    """Values are known here whatever the weights: what leaves once is found."""
    found, _ = sealed_run(pattern, NAMESPACES[0], tmp_path, sanity=2)
    assert type(found.error).__name__ == pattern.raises, found.error
    assert raw_hits(messages(found.error), raw_values()) == []
    assert found.hits == []
