"""Results of the door: answers, and the status of an account."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, final

from torch_holdout._shared.text import counted, up
from torch_holdout.ledger.registration import StoredStatistic, replaced_together

_RUNS_SHOWN = 20


@final
@dataclass(frozen=True)
class Answer:
    """A published value.

    Attributes:
        value: In the statistic's own units; NaN when exhausted or sealed.
        kind: ``"release"`` (read the holdout, cost one), ``"guess"`` (free), ``"repeat"`` (the
            stored answer, free), ``"exhausted"`` (no answer) or ``"sealed"`` (none before closing).
        budget_left: Releases that may still be made.
        source: Its first kind, ``"release"`` or ``"guess"``; None when exhausted. Only releases may
            become a claim.
        position: The query's number in the account, from 1; None when exhausted.
        account: The public mark of the account that gave it (``holdout.account``); None in a pickle
            of version 0.1.0.
        statistic: Of which statistic; None in a pickle of version 0.1.0.

    Example:
        >>> Answer(0.91, "repeat", 7, "release").is_release
        True
    """

    value: float
    kind: Literal["release", "guess", "repeat", "exhausted", "sealed"]
    budget_left: int
    source: Literal["release", "guess"] | None = None
    position: int | None = field(default=None, repr=False, compare=False)
    account: str | None = field(default=None, repr=False, compare=False)
    statistic: str | None = field(default=None, repr=False, compare=False)

    @property
    def is_release(self) -> bool:
        """Whether the value is a released one, now or when it was first asked."""
        return self.source == "release"


@final
@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The public state of one sealed run.

    Attributes:
        number: Its number in the account, from 1.
        name: What it is called.
        state: ``"open"``, ``"stopped"`` by its patience, ``"ended"`` or ``"given_up"``.
        evaluations: How many different weights were evaluated.
        passes: How many passes were made; patience counts these.
        best_evaluation: The evaluation that was handed over, if one was.
        nats: What it has said so far; evaluations of other runs pay for it from now on.
        id: Its public id, for ``holdout.run(resume=...)``.
        record: Whether it was better than every run that ended before it, if that was said.
        closed: Whether the holdout was closed: an open run never ended, and cannot go on.
    """

    number: int
    name: str | None
    state: str
    evaluations: int
    passes: int
    best_evaluation: int | None
    nats: float
    id: str = ""
    record: bool | None = None
    closed: bool = False

    def __str__(self) -> str:
        name = "" if self.name is None else f" ({self.name})"
        best = "" if self.best_evaluation is None else f", best {self.best_evaluation}"
        said = f"; has said {up(self.nats)} nats" if self.nats else ""
        made = counted(self.evaluations, "evaluation")
        goes_on = self.state == "open" and self.id and not self.closed
        mark = f"; resume={self.id!r} goes on" if goes_on else ""
        bit = "" if self.record is None else ", a record" if self.record else ", no record"
        return f"run {self.number}{name}: {self.decision}, {made}{best}{bit}{said}{mark}"

    @property
    def decision(self) -> str:
        """The state of the run, in words."""
        if self.state == "open" and self.closed:
            return "never ended"
        at = f" by patience at pass {self.passes:,}" if self.state == "stopped" else ""
        return self.state.replace("_", " ") + at


@final
@dataclass(frozen=True, kw_only=True)
class Status:
    """The public state of a holdout; every number follows from the transcript.

    Attributes:
        epsilon: Cap over the whole budget at ``delta``, constant from creation; replacing one
            holdout example (one whole group, if all statistics are means over the same groups,
            ``replaced``); covers adaptive queries and stopping early.
        epsilon_spent: Pure sum of what has been charged so far, open rounds included; infinite for
            Gaussian noise.
        rho_spent: The sum of rhos (zero-concentrated privacy) for Gaussian noise, else None.
        cost_per_release: Epsilon (rho for Gaussian noise) of an answer and its round of
            comparisons, by statistic.
        sampler_error: Addition to delta from inexact sampling, over all draws so far; where epsilon
            is infinite, the total variation that it comes from.
        renaming_detected: Whether the account knows its data's fingerprint.
        split_detected: Whether it knows a sketch of its data, so that a part of it is recognised.
        seeded: Whether the noise comes from a test seed, so that nothing is private.
        account: A public mark of the account, to tell it from another of the same name.
        unit: What the budget counts, ``"release"`` or ``"run"``; of a sealed holdout ``releases``
            are runs and ``queries`` are evaluations.
        runs: The sealed runs.
        nats: What they have said, by their state; what was said on request, by its kind:
            ``"record"``, ``"winner"`` and ``"challenge"``.
        incumbents: The public id of the model that was kept last in challenges, by statistic.
        closed: Whether it was closed: nothing more can be asked.
        prices: What the next sealed run would be worth, in words; ``holdout.prices()`` has all.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.LaplaceMechanism(epsilon=0.1), budget=20)
        >>> status = holdout.status()
        >>> isinstance(status, Status), status.budget_left, round(status.epsilon, 6)
        (True, 20, 2.0)
    """

    name: str
    size: int
    queries: int
    releases: int
    guesses: int
    budget: int
    budget_left: int
    exhausted: bool
    epsilon: float
    epsilon_spent: float
    delta: float | None
    sampler_error: float
    rounds: int
    seeded: bool
    renaming_detected: bool
    ledger: str
    account: str = field(default="", repr=False)
    rho_spent: float | None = None
    split_detected: bool = False
    unit: Literal["release", "run"] = "release"
    runs: tuple[RunStatus, ...] = field(default=(), repr=False)
    nats: dict[str, float] = field(default_factory=dict, repr=False)
    incumbents: dict[str, str] = field(default_factory=dict, repr=False)
    closed: bool = False
    prices: str = field(default="", repr=False)
    cost_per_release: dict[str, float] = field(repr=False)
    mechanism: dict[str, Any] = field(repr=False)
    statistics: dict[str, dict[str, Any]] = field(repr=False)

    def __str__(self) -> str:
        at = "pure" if self.delta is None else f"delta {self.delta:g}"
        state = ", closed" if self.closed else " (exhausted)" if self.exhausted else ""
        lines = [
            f"holdout {self.name!r}: {counted(self.size, 'example')}, {self.budget_left:,} of "
            f"{counted(self.budget, self.unit)} left{state}",
            self._asked(),
            f"  epsilon at most {_short(self.epsilon)} over the whole budget ({at}, replacing one "
            f"{self.replaced}); {self._spent()}",
            *(f"  {run}" for run in self.runs[-_RUNS_SHOWN:]),
            *(f"  incumbent of {name}: {query}" for name, query in self.incumbents.items()),
        ]
        for name, statistic in self.statistics.items():
            lines.append(f"  {name}: {_channel(statistic, self.mechanism)}")
            if self.unit == "release":
                currency = "epsilon" if self.rho_spent is None else "rho"
                cost = _short(self.cost_per_release[name])
                lines.append(f"    a release costs {currency} {cost} with its comparisons")
        if self.prices:
            lines.append(f"  {self.prices}")
        lines += self._data_lines()
        if self.seeded:
            lines.append("  SEEDED noise: for tests only, the privacy figures do not apply")
        return "\n".join(lines)

    @property
    def replaced(self) -> str:
        """What neighbouring holdouts differ in: one example, or one whole group of examples."""
        return replaced_together(map(StoredStatistic, self.statistics.values()))

    @property
    def grouped(self) -> list[str]:
        """The statistics whose units are groups of examples."""
        known = self.statistics.items()
        return [name for name, content in known if StoredStatistic(content).counts_groups]

    def _asked(self) -> str:
        if self.unit == "run":
            hidden = max(0, len(self.runs) - _RUNS_SHOWN)
            latest = f"; the latest {_RUNS_SHOWN}:" if hidden else ""
            return (
                f"  {counted(len(self.runs), 'run')} begun, {counted(self.queries, 'evaluation')}, "
                f"{said_by_kind(self.nats)}{latest}"
            )
        return (
            f"  asked {counted(self.queries, 'time')}: {counted(self.releases, 'release')}, "
            f"{counted(self.guesses, 'guess')}"
        )

    def _spent(self) -> str:
        if self.rho_spent is not None:
            return f"rho {_short(self.rho_spent)} spent (zCDP)"
        return f"{_short(self.epsilon_spent)} spent (pure sum)"

    def _data_lines(self) -> list[str]:
        """Say what about the data is not detected."""
        if not self.renaming_detected:
            split = "; a new split is, by the guard" if self.split_detected else ""
            undetected = "renaming is not detected, and neither is another cut of the data"
            return [f"  {undetected}: pass fingerprint=th.fingerprint(dataset){split}"]
        if not self.split_detected:
            return ["  parts of the data are not detected: open it once with its fingerprint"]
        return []


def said_by_kind(nats: dict[str, float]) -> str:
    """Format what runs have said, by how they stand.

    Example:
        >>> said_by_kind({"stopped": 5.9915, "open": 0.098, "ended": 0.0})
        '6.09 nats said (stopped 6, open 0.098)'
        >>> said_by_kind({})
        '0 nats said'
    """
    kinds = [f"{state.replace('_', ' ')} {up(said)}" for state, said in nats.items() if said]
    whole = f"{up(math.fsum(nats.values()))} nats said"
    return f"{whole} ({', '.join(kinds)})" if kinds else whole


def _short(value: float) -> str:
    return "infinite (none is guaranteed)" if math.isinf(value) else up(value, digits=4)


def _channel(statistic: dict[str, Any], mechanism: dict[str, Any]) -> str:
    width = statistic["high"] - statistic["low"]
    better = "higher" if statistic["mode"] == "max" else "lower"
    parts = [f"[{statistic['low']:g}, {statistic['high']:g}], {better} is better"]
    if StoredStatistic(statistic).counts_groups:
        parts[0] = f"mean over {counted(statistic['units'], 'group')}, {parts[0]}"
    if mechanism.get("evaluations") is not None:  # sealed: no answer, no grid
        return parts[0]
    for name in ("threshold", "step", "sigma", "epsilon"):
        if name in mechanism:
            normalised = mechanism[name]
            parts.append(f"{name} {normalised * width:.3g} ({normalised:g} normalised)")
    parts.append(f"grid step {width / statistic['grid']:.3g} (1/{statistic['grid']} normalised)")
    return ", ".join(parts)
