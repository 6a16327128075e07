"""A stored registration is read with types and written as it was."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutMismatchError
from torch_holdout.holdout.checks import query_key
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration, StoredStatistic

from support.builders.holdouts import ask, make_holdout, sums_of

ASSETS = Path(__file__).parent.parent / "assets"


def stored(version):
    connection = sqlite3.connect(f"file:{ASSETS}/ledger_v{version}.db?immutable=1", uri=True)
    texts = [text for (text,) in connection.execute("SELECT registration FROM th_holdouts")]
    connection.close()
    return texts


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
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
    kinds = json.loads(stored(3)[0])
    kinds["statistics"]["val_acc"]["kind"] = "zero_one"  # since schema 5
    assert StoredRegistration(made.identity()).text() == StoredRegistration(kinds).text()
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


@pytest.mark.parametrize(
    ("statistic", "kind"),
    [
        (th.ZeroOne(), "zero_one"),
        (th.BoundedMean(0.0, 1.0, mode="max"), "mean"),
        (th.CrossEntropy(5.0), "mean"),
        (th.Blockwise(torch.mean, 5, 0.0, 1.0), "blocks"),
    ],
)
def test_the_kind_decides_the_interval(statistic, kind):
    read = StoredStatistic(statistic.identity())
    assert read.interval_kind == kind
    assert read.counts_examples == (kind != "blocks")


GROUPS = {"count": 5, "rows": 20, "digest": "a"}


def test_a_mean_over_groups_has_the_interval_of_a_mean_and_other_units():
    read = StoredStatistic({"kind": "grouped_mean", "units": 5, "groups": GROUPS})
    assert (read.interval_kind, read.counts_examples, read.counts_groups) == ("mean", False, True)
    other = StoredStatistic(read.content | {"groups": GROUPS | {"digest": "b"}})
    assert read.cut != other.cut
    assert read.cut != StoredStatistic({"kind": "bounded_mean", "units": 5}).cut


def test_an_unknown_kind_has_the_interval_that_every_kind_has():
    for content in ({}, {"kind": "later"}, {"kind": None}, {"kind": ["zero_one"]}):
        assert StoredStatistic(content).interval_kind == "blocks"


SOFT = th.BoundedMean(0.0, 1.0, mode="max")


class TestZeroOneOfEarlierVersions:
    """Until schema 4 ``ZeroOne`` was registered as a bounded mean: such accounts stay open."""

    @pytest.fixture
    def url(self, tmp_path):
        shutil.copy(ASSETS / "ledger_v4.db", tmp_path / "holdout.db")
        (tmp_path / "holdout.db").chmod(0o600)
        return f"sqlite:///{tmp_path}/holdout.db"

    def opened(self, url, accuracy=None, **changes):
        arguments = {
            "name": "val",
            "size": 50,
            "statistics": {
                "val_loss": th.BoundedMean(0.0, 5.0),
                "val_acc": th.ZeroOne() if accuracy is None else accuracy,
            },
            "mechanism": th.Thresholdout(threshold=0.02, sigma=0.01, guess="last"),
            "budget": 6,
            "seed": 3,
        }
        return th.ReusableHoldout(url, **arguments | changes)

    def kind(self, holdout):
        return holdout.status().statistics["val_acc"]["kind"]

    def test_its_queries_are_found_again(self, url):
        holdout = self.opened(url)
        found = holdout.recall("val_acc", "weights 0")
        assert (found.kind, found.value, found.position) == ("repeat", 0.25, 2)
        before = holdout.status()
        assert ask(holdout, 30, "weights 0").value == 0.25
        assert holdout.status() == before
        assert holdout.recall("val_acc", "weights never asked") is None

    def test_the_stored_kind_stays(self, url):
        holdout = self.opened(url)
        holdout.recall("val_acc", "weights 0")
        assert self.kind(holdout) == "bounded_mean"
        assert StoredStatistic(holdout.status().statistics["val_acc"]).interval_kind == "mean"
        assert self.kind(self.opened(url)) == "bounded_mean"

    def test_soft_values_may_be_asked_of_it_as_before(self, url):
        holdout = self.opened(url, accuracy=SOFT)
        assert holdout.recall("val_acc", "weights 0") is None  # of another source
        assert self.kind(holdout) == "bounded_mean"

    def test_it_goes_on(self, tmp_path):
        shutil.copy(ASSETS / "ledger_v1.db", tmp_path / "holdout.db")
        (tmp_path / "holdout.db").chmod(0o600)
        rule = th.Thresholdout(threshold=0.1, sigma=0.01, guess="last")
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout = make_holdout(url, size=4, mechanism=rule, budget=3, seed=1)
        queries = holdout.status().queries
        ask(holdout, 3, "new")
        with pytest.raises(th.InvalidArgumentError, match="booleans or integers"):
            sums_of(holdout, torch.full((4,), 0.5))
        assert holdout.status().queries == queries + 1

    def test_a_statistic_that_is_added_has_the_kind_of_today(self, url):
        more = {"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne(), "new": th.ZeroOne()}
        holdout = self.opened(url, statistics=more)
        kinds = {n: s["kind"] for n, s in holdout.status().statistics.items()}
        assert kinds == {"val_loss": "bounded_mean", "val_acc": "bounded_mean", "new": "zero_one"}

    @pytest.mark.parametrize(
        "other",
        [th.BoundedMean(0.0, 1.0), th.BoundedMean(0.0, 2.0, mode="max")],
        ids=["mode", "bounds"],
    )
    def test_another_mean_is_not_taken_for_it(self, other):
        holdout = make_holdout("memory://other-mean", statistics={"val_acc": other})
        holdout.status()
        with pytest.raises(HoldoutMismatchError, match="kind: stored bounded_mean, given zero_one"):
            make_holdout("memory://other-mean").status()

    def test_only_what_differs_is_said(self, url):
        with pytest.raises(HoldoutMismatchError) as caught:
            self.opened(url, grid=8).status()
        assert "statistics.val_acc.grid: stored 32, given 8" in str(caught.value)
        assert "kind" not in str(caught.value)

    def test_the_reverse_is_refused(self, tmp_path):
        """Soft values in an account of zeros and ones would void its exact interval."""
        url = f"sqlite:///{tmp_path}/new.db"
        holdout = make_holdout(url)
        assert holdout.status().statistics["val_acc"]["kind"] == "zero_one"
        with pytest.raises(HoldoutMismatchError, match="kind: stored zero_one, given bounded_mean"):
            make_holdout(url, statistics={"val_acc": SOFT}).status()
        ask(make_holdout(url), 30, "a")

    def test_keys_are_those_that_were_stored(self):
        """Frozen: computed by version 0.1.0."""
        zero_one, soft = query_key(th.ZeroOne(), "weights 0"), query_key(SOFT, "weights 0")
        assert zero_one == "194400938ed9317780d1a82e365343228ae5b1f56def595f2582487d90a3564b"
        assert soft == "54188151c4b7bf42bdc15137c7fa76b51e89b35b6894033151b914bbf86131b0"
