"""Every careless pattern is refused before anything raw leaves, with its place in the message."""

import pytest
from torch_holdout.errors import UnguardedLogError

from support.builders.guarded import NAMESPACES
from support.oracles.leaks import raw_hits
from training.careless import beyond
from training.careless.careless import PATTERNS
from training.careless.patterns import Pattern, raw_values, small
from training.careless.runs import entries, messages, run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("quiet_lightning"),
    pytest.mark.filterwarnings("ignore"),
]
LOGGED = [pattern for pattern in PATTERNS if pattern.net == "one"]
LEAKING = [pattern for pattern in PATTERNS if pattern.leaks]


def by_id(patterns):
    return pytest.mark.parametrize("pattern", patterns, ids=lambda pattern: pattern.id)


def require_refused(found, pattern, sanity):
    assert type(found.error).__name__ == pattern.raises, found.error or "it went through"
    said = str(found.error)
    assert [name for name in pattern.names if name not in said] == []
    assert not pattern.lines or any(line in said for line in pattern.lines), pattern.lines
    assert raw_hits(messages(found.error), raw_values()) == []
    assert found.hits == []
    checked = sanity and pattern.run == "fit"
    assert found.queries == 0 or (pattern.charged and not checked)


def test_the_catalogue_is_large_and_its_names_are_different():
    assert len(PATTERNS) >= 75
    assert len({pattern.id for pattern in PATTERNS}) == len(PATTERNS)
    assert {pattern.net for pattern in PATTERNS} == {"one", "two"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("pattern", "namespace", "sanity"), entries(PATTERNS, lambda pattern: pattern.id)
)
def test_it_is_refused_and_its_place_is_named(pattern, namespace, sanity, tmp_path):
    found = run(pattern, namespace, tmp_path, sanity=sanity)
    require_refused(found, pattern, sanity)


@by_id(LOGGED)
def test_what_was_logged_is_refused_without_marked_tensors(pattern, tmp_path):
    found = run(pattern, NAMESPACES[0], tmp_path, looks=False)
    require_refused(found, pattern, 0)


@by_id(LEAKING)
def test_unguarded_the_raw_value_is_found(pattern, tmp_path):
    """The positive control: without a guard the harness finds each of them."""
    found = run(pattern, NAMESPACES[0], tmp_path, guarded=False)
    assert found.error is None
    assert found.published


# What can be taken back is dropped; what code has kept or read is only warned of.
RESET = ("metrics-updated", "metrics-called", "metrics-collection", "metrics-accuracy")
DROPPED = [p for p in PATTERNS if (p.net == "one" and p.run == "fit") or p.id in RESET]


@by_id(DROPPED)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_dropped_it_warns_and_nothing_raw_is_in_the_sinks(pattern, namespace, tmp_path):
    found = run(pattern, namespace, tmp_path, sanity=2, unguarded="drop")
    assert found.error is None
    assert any(name.strip("'") in said for said in found.warned for name in pattern.names)
    assert raw_hits(found.warned, raw_values()) == []
    assert found.hits == []
    assert found.queries == 2


@by_id(beyond.PATTERNS)
def test_what_is_out_of_reach_is_what_the_documentation_says(pattern, tmp_path):
    """Documented, not caught: if one of these is refused one day, it moves to the catalogue."""
    found = run(pattern, NAMESPACES[0], tmp_path)
    assert not isinstance(found.error, UnguardedLogError)
    assert found.hits


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_clean_module_has_nothing_to_find(namespace, guarded, tmp_path):
    clean = Pattern(build=lambda pl: small(pl)(), names=(), net="none")
    found = run(clean, namespace, tmp_path, sanity=2, guarded=guarded)
    assert found.error is None
    assert found.warned == []
    assert found.published == []
    assert bool(found.hits) != guarded  # the step's output
    assert found.queries == 2 * guarded
