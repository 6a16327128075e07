"""Prices of sealed runs: the published numbers, and Kraft's sum over every analyst's choices."""

import math
from dataclasses import dataclass, replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.bounds import hoeffding, hoeffding_tolerance
from torch_holdout.bounds.sealed_runs import (
    end_price,
    evaluation_bracket,
    noisy_end_price,
    noisy_stop_price,
    silence_price,
    stop_price,
)
from torch_holdout.bounds.shares import share, share_sum
from torch_holdout.errors import InvalidArgumentError

BETA = 0.05


def bracket(*, run=1, runs=1, evaluation, evaluations, others=0.0, statistics=1):
    return evaluation_bracket(
        failure=BETA, run=run, runs=runs, evaluation=evaluation, evaluations=evaluations,
        statistics=statistics, others=others,
    )  # fmt: skip


class TestNumbers:
    @pytest.mark.parametrize(
        ("units", "evaluations", "runs", "nats", "tolerance"),
        [
            (10_000, 50, 1, 7.755380, 0.019692),
            (10_000, 200, 1, 9.143298, 0.021381),
            (50_000, 300, 1, 9.548947, 0.009772),
            (10_000, 200, 10, 11.058118, 0.023514),
        ],
    )
    def test_brackets_to_six_digits(self, units, evaluations, runs, nats, tolerance):
        c = bracket(runs=runs, evaluation=evaluations, evaluations=evaluations)
        assert round(c, 6) == nats
        assert round(hoeffding_tolerance(c, units), 6) == tolerance

    @pytest.mark.parametrize(
        ("units", "evaluations", "fresh", "sealed"),
        [
            (700, 200, 0.0513, 0.0808),
            (2000, 200, 0.0304, 0.0478),
            (10_000, 50, 0.0136, 0.0197),
            (10_000, 200, 0.0136, 0.0214),
            (10_000, 1000, 0.0136, 0.0232),
            (50_000, 200, 0.0061, 0.0096),
        ],
    )
    def test_one_sealed_run(self, units, evaluations, fresh, sealed):
        c = bracket(evaluation=evaluations, evaluations=evaluations)
        assert hoeffding(units, BETA) == pytest.approx(fresh, rel=0.01)
        assert hoeffding_tolerance(c, units) == pytest.approx(sealed, rel=0.01)

    def test_prices(self):
        silence = [silence_price(j, 200, 10) for j in (10, 50, 100, 200)]
        assert [round(price, 3) for price in silence] == [0.0, 0.098, 0.231, 0.565]
        assert silence_price(60, 200, 10, after=10) == pytest.approx(
            -math.log(1 - share_sum(21, 60, 200) / 2), rel=1e-14
        )
        assert stop_price(41, 200) == pytest.approx(math.log(2 / share(41, 200)), rel=1e-14)
        assert end_price(7, 10) == pytest.approx(math.log(14), rel=1e-14)
        assert end_price(50, 10) == pytest.approx(math.log(20), rel=1e-14)
        assert end_price(15, 10, after=10) == pytest.approx(math.log(10), rel=1e-14)
        assert noisy_end_price(7) == pytest.approx(math.log(14), rel=1e-14)

    def test_statistics_and_other_runs_are_added(self):
        facts = {"evaluation": 3, "evaluations": 20, "run": 2, "runs": 4}
        plain = bracket(**facts)
        assert bracket(statistics=3, **facts) == pytest.approx(plain + math.log(3), rel=1e-14)
        assert bracket(others=5.5, **facts) == pytest.approx(plain + 5.5, rel=1e-14)

    def test_before_the_last_of_twenty_runs(self):
        """Twenty runs of 200 evaluations on 10,000 units: the ratio to one fresh query."""
        fresh = hoeffding(10_000, BETA)
        last = {"run": 20, "runs": 20, "evaluation": 200, "evaluations": 200}
        stops = 19 * stop_price(50, 200)
        assert stops == pytest.approx(115.7, rel=0.01)
        charged = hoeffding_tolerance(bracket(others=stops, **last), 10_000)
        assert charged == pytest.approx(0.0800, rel=0.01)
        assert charged / fresh == pytest.approx(5.89, rel=0.01)
        values = stops + 19 * math.log(32)  # a value out of 32 answers beside each stop
        shown = hoeffding_tolerance(bracket(others=values, **last), 10_000)
        assert values == pytest.approx(181.6, rel=0.01)
        assert shown == pytest.approx(0.0984, rel=0.01)
        assert shown / fresh == pytest.approx(7.25, rel=0.01)

    @pytest.mark.parametrize(
        ("units", "runs", "evaluations", "ratio"),
        [
            (8000, 20, 200, 2.03),  # a display of 20 % stops the runs
            (8000, 10, 200, 1.97),
            (8000, 50, 200, 2.11),
            (10_000, 20, 200, 1.82),  # the display is cut from the training set
            (10_000, 10, 200, 1.76),
            (10_000, 50, 200, 1.88),
            (8000, 20, 1, 1.51),  # only the best of each run by the display
        ],
    )
    def test_silent_runs(self, units, runs, evaluations, ratio):
        c = bracket(run=runs, runs=runs, evaluation=evaluations, evaluations=evaluations)
        found = hoeffding_tolerance(c, units) / hoeffding(10_000, BETA)
        assert found == pytest.approx(ratio, rel=0.01)

    def test_a_vault_of_half(self):
        """One run of one evaluation: sqrt(2) = 1.41 and the two shares of .95, 1.43 in all."""
        c = bracket(evaluation=1, evaluations=1)
        assert c == pytest.approx(math.log(2 / BETA) - 2 * math.log(0.95), rel=1e-12)
        ratio = hoeffding_tolerance(c, 5000) / hoeffding(10_000, BETA)
        assert ratio == pytest.approx(1.434, rel=0.001)


@dataclass(frozen=True)
class Law:
    """What one run may say, and the prices of it."""

    evaluations: int
    patience: int
    after: int = 0
    noisy: bool = False
    free: tuple[str, ...] = ()  # what a broken twin does not charge
    weighted: bool = True

    def stops(self, passes):
        """The weight of each symbol with which this pass can stop the run."""
        if passes <= self.after + self.patience:
            return []
        if "stop" in self.free:
            return [1.0]
        if not self.noisy:
            return [math.exp(-stop_price(passes, self.evaluations))]
        if not self.weighted:
            stop = math.exp(-stop_price(passes, self.evaluations))
            atom = passes - self.patience
            return [stop * (1 if b == atom else 1 / passes) for b in range(1, passes + 1)]
        facts = (passes, self.evaluations, self.patience)
        return [math.exp(-noisy_stop_price(*facts, best)) for best in range(1, passes + 1)]

    def ends(self, passes):
        """The weight of each symbol with which the analyst can end the run after this pass."""
        if self.noisy:
            return [math.exp(-noisy_end_price(passes))] * passes
        if passes <= self.after:
            return []
        bests = range(max(self.after, passes - self.patience), passes)
        return [math.exp(-end_price(passes, self.patience, self.after)) for _ in bests]

    def silence(self, passes):
        if "silence" in self.free:
            return 1.0
        return math.exp(-silence_price(passes, self.evaluations, self.patience, self.after))


def largest_sum(laws, longest, *, wait=False):
    """The largest sum, over all analysts, of the weights at which one evaluation can happen.

    The evaluation is of another run than these. At each moment the analyst asks it, or goes on
    with one of the runs: evaluates it (it stops or not), ends it, or leaves it open, crashed or
    given up for good, whose weight is the same. A state is the number of passes of each run that
    may go on, and the weight of what is final multiplies. With ``wait`` she asks only when no run
    can go on.
    """

    @cache
    def best(state):
        # state: for each run the passes so far, or None when what it said is final.
        now = math.prod(
            1.0 if passes is None else law.silence(passes)
            for law, passes in zip(laws, state, strict=True)
        )
        options = [] if wait and any(passes is not None for passes in state) else [now]
        for index, (law, passes) in enumerate(zip(laws, state, strict=True)):
            if passes is None:
                continue
            final = best((*state[:index], None, *state[index + 1 :]))
            if passes:
                options.append(sum(law.ends(passes)) * final)
                options.append(law.silence(passes) * final)
            if passes < longest:
                further = best((*state[:index], passes + 1, *state[index + 1 :]))
                options.append(sum(law.stops(passes + 1)) * final + further)
        return max(options)

    return best((0,) * len(laws))


LAWS = [
    Law(evaluations, patience, after)
    for evaluations in (1, 2, 5)
    for patience in (1, 2, 3)
    for after in (0, 2)
]
NOISY = [Law(evaluations, patience, noisy=True) for evaluations in (1, 4) for patience in (1, 3)]


def named(law):
    return f"m{law.evaluations}-p{law.patience}-k{law.after}" + ("-noisy" if law.noisy else "")


class TestKraft:
    """Weights of the prefixes at which one evaluation can happen sum to at most 1."""

    @pytest.mark.parametrize("law", LAWS + NOISY, ids=named)
    def test_one_run(self, law):
        for longest in (1, 3, law.evaluations, law.evaluations + 6, 60):
            assert largest_sum([law], longest) <= 1 + 1e-12
            assert largest_sum([law], longest, wait=True) <= 1 + 1e-12

    @pytest.mark.parametrize("first", LAWS[::3] + NOISY[:2], ids=named)
    @pytest.mark.parametrize("second", LAWS[1::4] + NOISY[2:], ids=named)
    def test_two_parallel_runs(self, first, second):
        for longest in (4, 9):
            assert largest_sum([first, second], longest) <= 1 + 1e-12
            assert largest_sum([first, second], longest, wait=True) <= 1 + 1e-12

    @pytest.mark.parametrize("law", [LAWS[0], LAWS[3], LAWS[8], LAWS[14], NOISY[3]], ids=named)
    def test_three_parallel_runs(self, law):
        runs = [law, Law(3, 1), Law(2, 2, 1)]
        assert largest_sum(runs, 7) <= 1 + 1e-12
        assert largest_sum(runs, 7, wait=True) <= 1 + 1e-12

    def test_nothing_is_given_away(self):
        """Stopped at any pass, or not stopped yet, is the whole; ended by the analyst is half."""
        law = Law(4, 2, 1)
        stopped = [sum(law.stops(t)) for t in range(1, 10)]
        assert sum(stopped) + law.silence(9) == pytest.approx(1, abs=1e-12)
        assert sum(law.ends(9)) == pytest.approx(0.5, abs=1e-12)
        noisy = Law(4, 2, noisy=True)
        assert sum(map(sum, map(noisy.stops, range(1, 10)))) == pytest.approx(
            1 - noisy.silence(9), abs=1e-12
        )

    @pytest.mark.parametrize("law", [Law(5, 2), Law(5, 2, 2), Law(4, 1, noisy=True)], ids=named)
    def test_free_silence_is_caught(self, law):
        """The stops come on top of the whole, for each of the parallel runs."""
        twin = replace(law, free=("silence",))
        once = 1 + share_sum(law.after + law.patience + 1, 8, law.evaluations) / 2
        assert largest_sum([twin], 8) == pytest.approx(once, abs=1e-12)
        assert largest_sum([twin, twin], 8) == pytest.approx(once**2, abs=1e-12)
        assert once > 1.09

    @pytest.mark.parametrize("law", [Law(5, 2), Law(5, 2, 2)], ids=named)
    def test_a_stop_epoch_that_is_not_charged_is_caught(self, law):
        assert largest_sum([replace(law, free=("stop",))], 8) > 3

    def test_a_noisy_best_pass_without_the_weights_of_its_code_is_caught(self):
        twin = Law(4, 1, noisy=True, weighted=False)
        assert largest_sum([twin], 12) > 1.2


def sum_with_give_ups(law, longest, *, anytime):
    """The largest sum for evaluation 1 of a run whose number is free again when it is given up.

    Beside it another run goes on. ``anytime``: the analyst asks, keeps the evaluation if the other
    run stops at its next pass, and otherwise gives the run up and asks in a new one.
    """

    @cache
    def best(passes):
        options = [law.silence(passes)]
        if passes < longest:
            options.append(sum(law.stops(passes + 1)) + best(passes + 1))
            if anytime:
                options.append(law.silence(passes) + best(passes + 1))
        return max(options)

    return best(0)


class TestGivingUp:
    def test_a_number_is_free_again_only_if_nothing_was_said_meanwhile(self):
        """Else the analyst keeps, of many evaluations, the one that another run points to."""
        law = Law(5, 2)
        assert sum_with_give_ups(law, 9, anytime=False) <= 1 + 1e-12
        assert sum_with_give_ups(law, 9, anytime=True) > 5

    def test_an_early_give_up_has_said_nothing(self):
        assert [silence_price(j, 200, 10, after=3) for j in (0, 1, 13)] == [0.0, 0.0, 0.0]
        assert silence_price(14, 200, 10, after=3) > 0


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 50), st.integers(0, 50), st.integers(0, 2000))
def test_silence_grows_and_never_costs_more_than_ln_2(evaluations, patience, after, passes):
    price = silence_price(passes, evaluations, patience, after)
    longer = silence_price(passes + 1, evaluations, patience, after)
    assert 0 <= price <= longer <= math.log(2) + 1e-12
    assert price <= silence_price(passes, evaluations, patience, max(0, after - 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda: stop_price(0, 10),
        lambda: stop_price(1, 0),
        lambda: end_price(3, 5, after=3),
        lambda: end_price(3, 0),
        lambda: silence_price(-1, 10, 5),
        lambda: silence_price(3, 10, 5, after=-1),
        lambda: noisy_stop_price(10, 10, 5, best=11),
        lambda: noisy_stop_price(10, 10, 5, best=0),
        lambda: noisy_end_price(0),
        lambda: bracket(evaluation=0, evaluations=10),
        lambda: bracket(evaluation=1, evaluations=10, others=-0.1),
        lambda: bracket(evaluation=1, evaluations=10, others=float("nan")),
        lambda: bracket(evaluation=1, evaluations=10, statistics=0),
        lambda: bracket(evaluation=1, evaluations=10, run=0),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError):
        call()
