"""A stored registration is read with types and written as it was."""

import json
import sqlite3
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration

ASSETS = Path(__file__).parent.parent / "assets"


def stored(version):
    connection = sqlite3.connect(f"file:{ASSETS}/ledger_v{version}.db?immutable=1", uri=True)
    texts = [text for (text,) in connection.execute("SELECT registration FROM th_holdouts")]
    connection.close()
    return texts


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_text_of_released_versions_comes_back_exactly(version):
    for text in stored(version):
        read = StoredRegistration.parse(text)
        assert read.text() == text
        assert read.size in (4, 40, 50, 60)
        assert read.mechanism().identity() == read.mechanism_identity
        assert read.delta is None


def test_a_holdout_writes_what_the_released_version_wrote():
    rule = th.Thresholdout(threshold=0.05, sigma=0.01, guess="last")
    statistics = {"val_loss": th.BoundedMean(0, 5), "val_acc": th.ZeroOne()}
    made = Registration(name="val", size=50, statistics=statistics, mechanism=rule, budget=5)
    assert StoredRegistration(made.identity()).text() == stored(3)[0]
    planned = Registration(
        name="val", size=50, statistics=statistics, mechanism=rule, budget=5, planned=9
    )
    assert list(planned.identity())[-1] == "planned"
    assert StoredRegistration(planned.identity()).planned == 9


def test_unknown_keys_and_their_order_stay():
    text = '{"later":[1,2],"statistics":{"a":{"new":null,"units":3}},"budget":1}'
    assert StoredRegistration.parse(text).text() == text


def test_statistics_are_added_at_the_end():
    read = StoredRegistration.parse(stored(3)[0])
    added = read.with_statistics({"new": read.statistics["val_acc"]})
    assert list(added.statistics) == ["val_loss", "val_acc", "new"]
    assert list(read.statistics) == ["val_loss", "val_acc"]


@pytest.mark.parametrize(
    "text",
    [None, "{", "3", "{}", '{"statistics":5}', '{"statistics":{"a":5}}', '{"statistics":{"a":{}}}'],
)
def test_what_is_no_registration_cannot_be_read(text):
    with pytest.raises(UNREADABLE):
        StoredRegistration.parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", "50"), ("budget", True), ("delta", "much"), ("resolution", None), ("seeded", 1)],
)
def test_a_value_of_another_type_is_not_believed(name, value):
    read = StoredRegistration(json.loads(stored(3)[0]) | {name: value})
    with pytest.raises(TypeError, match=f"^{name}$"):
        getattr(read, name)


def test_the_mechanism_says_whether_statistics_are_fixed():
    val, ladder, blocks = map(StoredRegistration.parse, stored(3))
    assert not val.fixes_statistics()
    assert ladder.fixes_statistics()
    assert not blocks.fixes_statistics()
    unknown = StoredRegistration(val.content | {"mechanism": {"kind": "of another library"}})
    assert not unknown.fixes_statistics()
    assert not StoredRegistration({"statistics": {}}).fixes_statistics()
