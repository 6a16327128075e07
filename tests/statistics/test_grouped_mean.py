"""Means over groups of rows: exact sums, ids in any order, and passes that are not the holdout."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError, PartialPassError

from support.oracles.host_reads import HostReads

EXACT = th.Ladder(step=0.0)
RESOLUTION = 1000
IDS = [7, 7, 3, 7, 9, 3, 9, 9, 9, 1]  # four groups: of 3, 2, 4 and 1 rows


def account(statistic=None, **changes):
    statistic = statistic or th.GroupedMean(0.0, 1.0, mode="max", groups=IDS)
    arguments = {
        "name": "val", "size": 10, "statistics": {"acc": statistic}, "mechanism": EXACT,
        "budget": 50, "grid": 4 * RESOLUTION, "resolution": RESOLUTION,
    }  # fmt: skip
    return th.ReusableHoldout("memory://", **{**arguments, **changes})


def total(values, ids=IDS, batch=3, holdout=None, with_ids=None):
    """The integer sum of the groups' levels: there is an answer for every sum."""
    holdout = holdout or account(th.GroupedMean(0.0, 1.0, mode="max", groups=ids), size=len(ids))
    sums = holdout.accumulator("acc")
    parts = torch.as_tensor(values, dtype=torch.float64).split(batch)
    kinds = None if with_ids is None else torch.as_tensor(with_ids).split(batch)
    for place, part in enumerate(parts):
        sums.update(part, *([] if kinds is None else [kinds[place]]))
    answer = holdout.release("acc", sums, query=f"{holdout.status().queries}")
    units = holdout.statistics["acc"].groups.count
    return round(answer.value * units * RESOLUTION)


def by_hand(values, ids=IDS):
    levels = []
    for each in dict.fromkeys(ids):
        own = [Fraction(v) for v, own in zip(values, ids, strict=True) if own == each]
        mean = sum(own) / len(own) * RESOLUTION
        levels.append((2 * mean.numerator + mean.denominator) // (2 * mean.denominator))
    return sum(levels)


def some(seed=0, size=10):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestValue:
    def test_it_is_the_mean_over_groups_of_the_mean_of_their_rows(self):
        for seed in range(20):
            values = some(seed)
            # Rows are rounded to 2^-49: a mean at the border of two levels may fall on either side.
            assert abs(total(values) - by_hand(values.tolist())) <= 1
        halves = torch.tensor([0.5, 0.25, 1.0, 0.0, 0.5, 0.5, 1.0, 0.25, 0.0, 0.125])
        assert total(halves) == by_hand(halves.tolist())

    def test_a_large_group_counts_as_much_as_a_small_one(self):
        assert total([0, 0, 0, 0, 1, 0, 1, 1, 1, 0]) == RESOLUTION
        assert total([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]) == RESOLUTION

    def test_batches_order_and_ids_do_not_matter(self):
        values, order = some(), torch.randperm(10, generator=torch.Generator().manual_seed(1))
        ids = torch.tensor(IDS)
        found = {total(values, batch=batch) for batch in (1, 3, 10)}
        found |= {total(values[order], with_ids=ids[order], batch=batch) for batch in (1, 4)}
        assert len(found) == 1

    def test_ids_of_every_kind(self):
        values, order = some(), list(range(9, -1, -1))
        texts = [f"patient {i}" for i in IDS]
        answers = set()
        for groups, own in (
            (torch.tensor(IDS), torch.tensor(IDS)[order]),
            (np.array(IDS), np.array(IDS)[order]),
            (IDS, torch.tensor(IDS, dtype=torch.int32)[order]),
            (IDS, [IDS[i] for i in order]),
            ([torch.tensor(i) for i in IDS], [torch.tensor(IDS[i]) for i in order]),
            (texts, [texts[i] for i in order]),
            (np.array(texts), tuple(texts[i] for i in order)),
        ):
            holdout = account(th.GroupedMean(0.0, 1.0, mode="max", groups=groups))
            sums = holdout.accumulator("acc")
            sums.update(values[order], own)
            answers.add(holdout.release("acc", sums, query="w").value)
        assert len(answers) == 1

    def test_a_function_takes_what_update_gets_and_ids_are_named(self):
        statistic = th.GroupedMean(
            0.0, 1.0, mode="max", groups=IDS, per_example=lambda p, t: (p == t).double()
        )
        holdout = account(statistic)
        sums = holdout.accumulator("acc")
        sums.update(torch.ones(10), torch.ones(10), ids=IDS)
        assert holdout.release("acc", sums, query="w").value == 1.0

    def test_nan_counts_as_the_worse_bound_and_values_are_clipped(self):
        assert total([float("nan")] * 10) == 0
        assert total([float("inf")] * 10) == 0
        assert total([5.0] * 10) == 4 * RESOLUTION
        worse = account(th.GroupedMean(0.0, 1.0, groups=IDS))
        assert total([float("nan")] * 10, holdout=worse) == 4 * RESOLUTION

    def test_it_is_made_in_and_out_of_inference_mode(self):
        holdout, values = account(), some()
        sums = holdout.accumulator("acc")
        with torch.inference_mode():
            sums.update(values[:5] * 1)
        sums.update(values[5:])
        with torch.inference_mode():
            answer = holdout.release("acc", sums, query="w")
        assert round(answer.value * 4 * RESOLUTION) == total(values)

    def test_nothing_is_read_before_the_end_of_the_pass(self):
        holdout, ids = account(), torch.tensor(IDS)
        sums, other = holdout.accumulator("acc"), holdout.accumulator("acc")
        with HostReads() as reads:
            sums.update(some())
            other.update(some(), ids)
        assert reads.count == 0


class TestSensitivity:
    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_one_changed_group_moves_the_sum_by_at_most_the_resolution(self, data):
        size = data.draw(st.integers(2, 30))
        ids = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
        number = st.floats(-1, 2) | st.sampled_from([float("nan"), float("inf"), -float("inf")])
        values = data.draw(st.lists(number, min_size=size, max_size=size))
        others = data.draw(st.lists(number, min_size=size, max_size=size))
        which = data.draw(st.sampled_from(ids))
        changed = [o if i == which else v for v, o, i in zip(values, others, ids, strict=True)]
        moved = abs(total(changed, ids) - total(values, ids))
        assert moved <= RESOLUTION

    def test_the_bound_is_met_by_the_largest_group(self):
        low, high = torch.zeros(10), torch.zeros(10)
        high[torch.tensor(IDS) == 9] = 1
        assert total(high) - total(low) == RESOLUTION

    def test_twin_of_rows_as_units_moves_by_more(self):
        """As a mean of rows, the group of four moves the sum by four times the resolution."""
        holdout = account(th.BoundedMean(0.0, 1.0, mode="max"), grid=10 * RESOLUTION)
        answers = []
        for value in (0.0, 1.0):
            sums = holdout.accumulator("acc")
            sums.update(torch.where(torch.tensor(IDS) == 9, value, 0.0))
            answers.append(holdout.release("acc", sums, query=f"{value}").value)
        assert round((answers[1] - answers[0]) * 10 * RESOLUTION) == 4 * RESOLUTION

    def test_a_group_of_a_million_rows_is_exact(self):
        ids = [0] * 10**6 + [1]
        assert total([1.0] * 10**6 + [0.0], ids, batch=10**6) == RESOLUTION


class TestPasses:
    def refused(self, holdout, *batches, error=PartialPassError, match="Nothing was"):
        sums = holdout.accumulator("acc")

        def ask():
            for batch in batches:
                sums.update(*batch)
            holdout.release("acc", sums, query="w")

        with pytest.raises(error, match=match) as caught:
            ask()
        assert holdout.status().queries == 0
        return str(caught.value)

    def test_a_group_with_another_number_of_rows_is_refused(self):
        ids = torch.tensor(IDS)
        ids[0] = 1  # group 1 has two rows now, group 7 two instead of three
        text = self.refused(account(), (some(), ids), match="as many rows as were registered")
        assert not any(f" {each} " in text for each in (7, 9))

    def test_an_unknown_id_is_refused(self):
        for ids in (
            torch.tensor([*IDS[:-1], 2]),
            torch.tensor([*IDS[:-1], 10**12]),
            [*IDS[:-1], "x"],
        ):
            self.refused(account(), (some(), ids), match="not registered")

    @pytest.mark.parametrize("rows", [10**8 + 1, 10**18, 10**30])
    def test_more_ids_than_can_be_listed_are_refused_at_once(self, rows):
        with pytest.raises(InvalidArgumentError, match="at most 100,000,000 labels"):
            th.GroupedMean(0.0, 1.0, groups=range(rows))

    def test_too_few_rows_and_too_many_are_refused(self):
        self.refused(account(), (some()[:9],), match="all 10 examples")
        self.refused(account(), (some(),), (some(),), match="values for each example")
        self.refused(account(), match="all 10 examples")

    def test_what_is_wrong_in_a_batch_is_refused_at_once(self):
        wrong = InvalidArgumentError
        self.refused(account(), (some(), IDS[:9]), error=wrong, match="as many ids as values")
        self.refused(account(), (some(), torch.rand(10)), error=wrong, match="whole numbers")
        self.refused(account(), (some(), torch.tensor(IDS)[None]), error=wrong, match="dimensions")
        self.refused(account(), (some(), [[i] for i in IDS]), error=wrong, match="several values")
        self.refused(account(), (some(), "ids"), error=wrong, match="or a list")
        self.refused(account(), (some()[:5], IDS[:5]), (some()[5:],), error=wrong, match="or none")
        self.refused(account(), (some().mean(),), error=wrong, match="batch mean")
        texts = account(th.GroupedMean(0.0, 1.0, groups=list("abcdefghij")))
        self.refused(texts, (some(), torch.arange(10)), error=wrong, match="as a list")

    def test_counts_are_refused(self):
        sums = account().accumulator("acc")
        with pytest.raises(InvalidArgumentError, match="not counts"):
            sums.update_counted(torch.rand(2), torch.tensor([4, 6]), 10)

    def test_a_sum_has_no_value_of_its_own(self):
        sums = account().accumulator("acc")
        sums.update(some())
        for read in (float, repr, copy.deepcopy):
            shown = "sealed" if read is repr else None
            if shown:
                assert shown in read(sums)
            else:
                with pytest.raises(th.SealedValueError):
                    read(sums)


class TestRegistered:
    def test_ids_are_not_registered_but_which_rows_are_together_is(self):
        texts = ["Ann Smith"] * 5 + ["Bob Jones"] * 5
        one = th.GroupedMean(0.0, 1.0, groups=texts)
        assert "Ann" not in repr(one) + repr(one.identity()) + one.source()
        renamed = th.GroupedMean(0.0, 1.0, groups=[3] * 5 + [4] * 5)
        assert one.identity() == renamed.identity()
        assert one != renamed
        other = th.GroupedMean(0.0, 1.0, groups=["Ann Smith"] * 6 + ["Bob Jones"] * 4)
        assert one.identity() != other.identity()
        assert one.identity()["groups"] | {"digest": ""} == {
            "count": 2, "rows": 10, "fewest": 5, "most": 5, "digest": "",
        }  # fmt: skip

    def test_another_grouping_is_another_account(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"

        def opened(ids):
            statistic = th.GroupedMean(0.0, 1.0, groups=ids)
            return th.ReusableHoldout.open(
                url, name="val", size=10, statistics={"acc": statistic}, mechanism=EXACT, budget=5
            )

        opened(IDS)
        opened([i + 100 for i in IDS])  # other names of the same patients
        with pytest.raises(HoldoutMismatchError, match="digest"):
            opened([*IDS[:-2], 1, 9])

    def test_size_counts_rows(self):
        with pytest.raises(InvalidArgumentError, match="counts rows, not groups"):
            account(size=4)
        assert account().status().statistics["acc"]["units"] == 4

    def test_a_plan_for_rows_is_said_to_promise_too_much(self):
        """The account itself counts groups; a plan for as many units as there are says nothing."""
        facts = {"name": "val", "statistics": {"acc": th.GroupedMean(0.0, 1.0, groups=IDS)}}
        rows, groups = (th.plan(size=size, queries=5) for size in (10, 4))
        with pytest.warns(th.HoldoutWarning, match="10 independent examples, but .'acc'. have"):
            careless = th.ReusableHoldout("memory://", **facts, plan=rows)
        careful = th.ReusableHoldout(
            "memory://", **facts, size=10, mechanism=groups.mechanism, budget=groups.budget
        )
        assert careless.certificate().tolerance == careful.certificate().tolerance
        facts["statistics"] = {"acc": th.ZeroOne()}
        th.ReusableHoldout("memory://", **facts, plan=rows)  # no warning, which would be an error

    @pytest.mark.parametrize(
        ("groups", "words"),
        [
            ("patients", "one label for each"),
            ([], "an id for each row"),
            ([None] * 10, "missing"),
            (torch.rand(10, 2), "several values"),
            ({1, 2}, "set"),
            (3, "int"),
        ],
    )
    def test_what_cannot_be_groups_is_refused(self, groups, words):
        with pytest.raises(InvalidArgumentError, match=words):
            th.GroupedMean(0.0, 1.0, groups=groups)

    def test_it_survives_a_pickle(self):
        statistic = th.GroupedMean(0.0, 2.0, groups=IDS)
        statistic.accumulator(8, size=10).update(some())  # fills what is kept for a device
        for again in (pickle.loads(pickle.dumps(statistic)), copy.deepcopy(statistic)):
            assert again == statistic
            assert hash(again) == hash(statistic)
            assert again.identity() == statistic.identity()
        holdout = account(statistic)
        copied = pickle.loads(pickle.dumps(holdout))
        assert copied.statistics["acc"] == statistic

    def test_certificate_status_and_report_name_the_groups(self):
        holdout = account()
        assumed = holdout.certificate().assumptions
        assert assumed[0].startswith("units are groups: the 4 groups of acc are an i.i.d. sample")
        assert "mean over 4 groups" in str(holdout.status())
        assert "replacing one group of examples" in str(holdout.status())
        mixed = account(
            statistics={"acc": th.GroupedMean(0.0, 1.0, groups=IDS), "loss": th.BoundedMean(0, 1)}
        )
        assert "for the other statistics all examples" in mixed.certificate().assumptions[0]
        assert "replacing one example" in str(mixed.status())

    def test_the_certificate_is_that_of_as_many_examples(self):
        groups = account().certificate()
        rows = account(th.BoundedMean(0.0, 1.0, mode="max"), size=4).certificate()
        assert groups.tolerance == rows.tolerance

    def test_the_parts_of_a_split_by_groups_have_whole_groups(self):
        ids = [f"patient {i % 17}" for i in range(100)]
        data = torch.utils.data.TensorDataset(torch.arange(100.0))
        display, rest = th.split(data, display=0.3, groups=ids)
        own = [ids[i] for i in rest.indices]
        assert not set(own) & {ids[i] for i in display.indices}
        assert th.GroupedMean(0.0, 1.0, groups=own).units(len(rest)) == len(set(own))


class TestElsewhere:
    def test_a_guess_is_the_mean_of_training_rows(self):
        mechanism = th.Thresholdout(threshold=0.5, sigma=0.0, guess="train")
        holdout = account(mechanism=mechanism)
        sums, guess = holdout.accumulator("acc"), holdout.accumulator("acc", role="guess")
        sums.update(torch.full((10,), 0.5))
        guess.update(torch.tensor([0.0, 0.25, 0.5]), ["of", "other", "people"])
        answer = holdout.release("acc", sums, query="w", guess=guess)
        assert (answer.kind, answer.value) == ("guess", 0.25)

    def test_a_metric_takes_ids(self):
        holdout = account()
        metric = th.ReusableHoldoutMetric(holdout, "acc")
        metric.update(some(), torch.tensor(IDS))
        assert round(float(metric.compute()) * 4 * RESOLUTION) == total(some())

    def test_a_sealed_account_closes_with_the_interval_of_groups(self):
        ids = torch.arange(400).repeat_interleave(5)
        statistic = th.GroupedMean(0.0, 1.0, groups=ids)
        holdout = account(statistic, size=2000, mechanism=th.Sealed(evaluations=1), budget=1,
                          grid=None, resolution=None)  # fmt: skip
        values = 0.2 + 0.01 * some(3, 2000)
        with holdout.run() as run:
            sums = holdout.accumulator("acc")
            sums.update(values)
            run.evaluate({"acc": sums}, query="w")
        (closed,) = holdout.close().values
        assert closed.value == pytest.approx(float(values.mean()), abs=1e-4)
        # Moments: the values hardly vary. By KL alone 400 units would be known to 0.1.
        assert closed.low < closed.value < closed.high
        assert closed.high - closed.low < 0.06
        assert "units are groups" in holdout.close().assumptions[0]

    def test_challenges_pair_groups(self, tmp_path):
        ids = torch.arange(200).repeat_interleave(3)
        holdout = th.ReusableHoldout(
            f"sqlite:///{tmp_path}/holdout.db", name="val", size=600, budget=5,
            statistics={"loss": th.GroupedMean(0.0, 1.0, groups=ids)},
            mechanism=th.Sealed(evaluations=1),
        )  # fmt: skip
        base = some(5, 600)
        first = holdout.challenge("loss", base, query="old")
        better = holdout.challenge("loss", base * 0.5, query="new")
        worse = holdout.challenge("loss", base * 0.9, query="worse")
        assert (first.kept, better.kept, worse.kept) == (None, True, False)
        with pytest.raises(PartialPassError):
            holdout.challenge("loss", base[:200], query="groups instead of rows")
