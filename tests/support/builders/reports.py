"""Ledgers worth a report: curves of several runs, an exhausted account, hostile names."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import torch
import torch_holdout as th
from torch_holdout.accounting import Concentrated
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.run_times import RunTimes
from torch_holdout.prediction.budget import PrivacyBudget
from torch_holdout.prediction.neighbours import Neighbours
from torch_holdout.prediction.records import TrainingRecords

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% raw %}",
    '=HYPERLINK("http://x")',
    "שלום עולם 🦊 مرحبا",
    "w" * 200,
    "a name with spaces " * 10,
)
START = datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)


class Retold:
    """A ledger whose answers were asked over weeks: a test does not take as long."""

    def __init__(self, url, minutes=47):
        self._ledger, self._minutes = Ledger(url), minutes

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def answers(self, account, **part):
        return [
            replace(found, asked_at=self.at(found.position))
            for found in self._ledger.answers(account, **part)
        ]

    def charges(self, account):
        return [
            replace(found, asked_at=self.at(20 * found.position))
            for found in self._ledger.charges(account)
        ]

    def run_times(self, account):
        return {
            run: RunTimes(
                self.at(30 * run), self.at(30 * run + 9), found.ended_at and self.at(30 * run + 9)
            )
            for run, found in self._ledger.run_times(account).items()
        }

    def refusals(self, account):
        return [
            replace(found, first_at=self.at(500), last_at=self.at(500 + found.count))
            for found in self._ledger.refusals(account)
        ]

    def at(self, position):
        return (START + timedelta(minutes=self._minutes * position)).isoformat()


def passes(holdout, **means):
    """Sealed sums of a pass whose per-example values have some mean."""
    found = {}
    for name, mean in means.items():
        statistic = holdout.statistics[name]
        share = (mean - statistic.low) / (statistic.high - statistic.low)
        sums = holdout.accumulator(name)
        right = torch.arange(holdout.size) < round(share * holdout.size)
        low, high = torch.tensor(statistic.low), torch.tensor(statistic.high)
        zero_one = isinstance(statistic, th.ZeroOne)
        sums.update(right if zero_one else torch.where(right, high, low))
        found[name] = sums
    return found


def curve(epoch, floor, speed, overfit):
    """Loss and accuracy of a run that fits, and then fits too well."""
    loss = floor + 2.1 * 0.5 ** (epoch / speed) + overfit * max(0, epoch - 12) ** 1.3
    return {"val_loss": min(loss, 5.0), "val_acc": min(1.0, 1.03 - 0.3 * loss)}


RUNS = {
    "baseline": (0.42, 2.5, 0.008),
    "wide": (0.33, 2.0, 0.012),
    "wide + dropout": (0.24, 3.0, 0.002),
    "cosine schedule": (0.30, 2.6, 0.003),
}


def several_runs(url, budget=60, epochs=24, together=True, **changes):
    """A holdout that several runs have asked, taking turns or one after the other."""
    arguments = {
        "name": "digits-val",
        "size": 20_000,
        "statistics": {
            "val_loss": th.BoundedMean(0.0, 5.0),
            "val_acc": th.BoundedMean(0.0, 1.0, mode="max"),
        },
        "mechanism": th.Thresholdout(threshold=0.02, sigma=0.0005, guess="last"),
        "budget": budget,
        "seed": 3,
    }
    holdout = th.ReusableHoldout(url, **{**arguments, **changes})
    order = [(run, epoch) for run in RUNS for epoch in range(epochs)]
    if together:
        order.sort(key=lambda item: item[1])
    for name, epoch in order:
        means = curve(epoch, *RUNS[name])
        means = {statistic: means[statistic] for statistic in holdout.statistics}
        with th.named_run(name):
            holdout.release_all(passes(holdout, **means), query=f"{name} {epoch}")
    return holdout


def hostile_names(url, names=HOSTILE):
    """A holdout whose own name, statistics and runs try to break the page."""
    holdout = th.ReusableHoldout(
        url,
        name=names[0],
        size=500,
        statistics={own: th.ZeroOne() for own in names},
        mechanism=th.Thresholdout(threshold=0.03, sigma=0.004, guess="last"),
        budget=30,
        seed=5,
    )
    for i in range(8):
        with th.named_run(names[i % len(names)]):
            asked = passes(holdout, **dict.fromkeys(names, (i * 13 % 100) / 100))
            holdout.release_all(asked, query=f"question {i}")
    return holdout


def empty(url):
    """A ledger without an account."""
    with Ledger(url)._transaction(create=True):
        return Ledger(url)


def charged_records(url, name="patients-2026"):
    """An account of training records that was charged for predictions and validations."""
    records = TrainingRecords(
        url,
        name=name,
        budget=PrivacyBudget(epsilon=2.0, delta=1e-5),
        neighbours=Neighbours(relation="add-remove", unit="user"),
    )
    detail = '{"kind": "gn_max", "sigma": 40.0, "num_parts": 250, "num_outputs": 10}'
    asked = '{"holdout": "digits-val", "statistic": "val_acc", "mechanism": {"kind": "soft"}}'
    for batch in (8, 16, 4, 12, 2, 30, 6):
        records.pay(Concentrated(0.0007), batch, purpose="prediction", detail=detail)
        records.pay(Concentrated(0.0003), 3, purpose="validation", detail=asked)
    return records
