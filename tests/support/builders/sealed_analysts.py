"""Adaptive analysts of sealed runs: they use whatever a run says to fit the holdout.

Features are independent fair coins, one column of signs for each, so that every column, and every
vote of columns with a tie broken by one more coin, is right with probability 1/2 in the population.
"""

import numpy as np
import torch
import torch_holdout as th
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.sealed_runs import evaluation_bracket

TRUTH = 0.5
KINDS = {"zero_one": th.ZeroOne(), "values": th.BoundedMean(0.0, 1.0, mode="max")}


class Coins:
    """A sealed account on a holdout of fair coins, in front of the real door."""

    def __init__(self, seed, *, size, evaluations, runs, kind="zero_one"):
        self.generator, self.size, self.kind = np.random.default_rng(seed), size, kind
        self.evaluations, self.runs, self.asked = evaluations, runs, 0
        self.holdout = th.ReusableHoldout(
            "memory://", name="val", size=size, statistics={"acc": KINDS[kind]},
            mechanism=th.Sealed(evaluations=evaluations), budget=runs,
        )  # fmt: skip

    def column(self, size=None):
        """A new coin: the signs of one feature."""
        return self.generator.integers(0, 2, size or self.size, dtype=np.int8) * 2 - 1

    def vote(self, columns, weights=None):
        """A vote of columns; fair again, because it is odd in them and ties go to a new coin."""
        weights = np.ones(len(columns)) if weights is None else np.asarray(weights)
        total = weights @ np.array(columns, dtype=np.float64)
        tied = np.abs(total) < 1e-9
        return np.where(tied, self.column(), np.sign(total)).astype(np.int8)

    def run(self, patience=None, **more):
        """A new run, stopped by that patience or by nothing."""
        stop = None if patience is None else th.Patience("acc", patience)
        return self.holdout.run(stop=stop, **more)

    def evaluate(self, run, column):
        """Evaluate a column in a run; returns what the run says."""
        self.asked += 1
        sums = self.holdout.accumulator("acc")
        sums.update(self._values(column))
        return run.evaluate({"acc": sums}, query=f"weights {self.asked}")

    def _values(self, column):
        right = torch.from_numpy(column > 0)
        if self.kind == "zero_one":
            return right
        distance = torch.from_numpy(self.generator.random(self.size) / 2)
        return torch.where(right, 0.5 + distance, 0.5 - distance)


def misses(coins, failure):
    """Whether any interval of the closed holdout misses its population value."""
    return any(TRUTH not in value for value in coins.holdout.close(failure=failure).values)


def misses_uncharged(coins, failure):
    """The same for the twin that charges nothing of what other runs have said."""
    coins.holdout.close()
    stored = coins.holdout._ledger.closing(coins.holdout._attached())
    shares = {run.run: run.share for run in stored.runs}
    found = []
    for event in stored.evaluations:
        bracket = evaluation_bracket(
            failure=failure, run=shares[event.run], runs=coins.runs, evaluation=event.evaluation,
            evaluations=coins.evaluations, statistics=1, others=0.0,
        )  # fmt: skip
        sums = stored.sums[event.run, event.evaluation, "acc"]
        low, high = closing_interval(
            kind="zero_one", total=sums.total, squares=sums.squares, units=coins.size,
            resolution=coins.holdout._registration.levels, bracket=bracket,
        )  # fmt: skip
        found.append(low <= TRUTH <= high)
    return not all(found)


def largest_gap(coins):
    """How far the best closed value is from the population's."""
    return max(abs(value.value - TRUTH) for value in coins.holdout.close().values)


def stopped_run(coins, patience, propose):
    """Evaluate what ``propose`` gives until patience stops the run; return the best of it."""
    tried = []
    with coins.run(patience) as run:
        stop = False
        while not stop:
            tried.append(propose())
            stop = coins.evaluate(run, tried[-1]).stop
    return tried[run.outcome.best_evaluation - 1]


def best_of(coins):
    """Evaluate as many coins as are planned, in one silent run, and quote the best at closing."""
    with coins.run() as run:
        for _ in range(coins.evaluations):
            coins.evaluate(run, coins.column())


def majority(coins, patience=4):
    """Use only when runs stopped: that names each run's best coin. Vote with all of them."""
    chosen = [stopped_run(coins, patience, coins.column) for _ in range(coins.runs - 1)]
    with coins.run() as run:
        coins.evaluate(run, coins.vote(chosen))


def restarting(coins, patience=4):
    """Give up after a few evaluations and begin again, with the earlier winner in the next vote."""
    kept = [coins.column()]
    for _ in range(coins.runs):
        for length in (1, patience, 2):
            run = coins.run(patience)
            for _ in range(length):
                coins.evaluate(run, coins.vote([*kept, coins.column()]))
            assert run.give_up().price == 0.0
        best = stopped_run(coins, patience, lambda: coins.vote([*kept, coins.column()]))
        kept.append(best)


def fine_tuning(coins, patience=4):
    """Begin each run from the best weights of the one before, with one more coin in each epoch."""
    kept = []
    for _ in range(coins.runs):
        tried = []

        def more(tried=tried):
            tried.append(coins.column())
            return coins.vote([*kept, tried[-1]])

        with coins.run(patience) as run:
            while not coins.evaluate(run, more()).stop:
                pass
        kept.append(tried[run.outcome.best_evaluation - 1])


def parallel(coins, patience=3, lanes=3):
    """Keep several runs open; each next epoch votes with the best coins of those that stopped."""
    winners, begun = [], 0
    open_runs = []
    while begun < coins.runs or open_runs:
        if begun < coins.runs and len(open_runs) < lanes:
            open_runs.append((coins.run(patience), []))
            begun += 1
        for run, tried in list(open_runs):
            tried.append(coins.column())
            if coins.evaluate(run, coins.vote([*winners, tried[-1]])).stop:
                winners.append(tried[run.outcome.best_evaluation - 1])
                open_runs.remove((run, tried))


def watching(coins, shared=0, displayed=None):
    """Climb on a display that may be watched; the sealed part says nothing until closing.

    ``shared``: how many sealed examples are in the display too, as after a second cut.
    """
    displayed = coins.size if displayed is None else displayed
    for _ in range(coins.runs):
        kept, scores = [], []
        with coins.run() as run:
            for _ in range(coins.evaluations - 1):
                column = coins.column()
                display = np.concatenate([column[:shared], coins.column(displayed - shared)])
                kept.append(column)
                scores.append(float(display.sum()))
                coins.evaluate(run, column)
            coins.evaluate(run, coins.vote(kept, scores))


def recording(coins, changed=0.1):
    """Climb by record bits alone: change a tenth of the last record, and keep the change if it is.

    Each model is a fair coin in the population, because the part that changes is drawn there too.
    """
    best = coins.column()
    for _ in range(coins.runs):
        part = coins.generator.random(coins.size) < changed
        tried = np.where(part, coins.column(), best)
        with coins.run() as run:
            coins.evaluate(run, tried)
        best = tried if run.record() else best


def peeking(coins):
    """In one run, weigh each coin with its raw value, as if values were shown for ln m."""
    tried, weights = [], []
    with coins.run() as run:
        for _ in range(coins.evaluations - 1):
            tried.append(coins.column())
            weights.append(float(tried[-1].sum()))
            coins.evaluate(run, tried[-1])
        coins.evaluate(run, coins.vote(tried, weights))
