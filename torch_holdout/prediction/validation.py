r"""A private predictor evaluated on a reusable holdout: two doors, one transaction.

The expected accuracy is the mean over examples of the probability of the right label. Of a soft
majority, :math:`\mathrm{softmax}(\eta\,\mathrm{votes}_i)[y_i]`, one member's votes move it by at
most :math:`\tanh(\eta/2)`, of neighbours' votes one record by the total variation of their noise,
however many examples there are. So the holdout answers it as any other statistic of its own
examples, and the training records pay for one comparison and one answer instead of one query per
example.
"""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from torch_holdout._noise.streams import SystemNoise
from torch_holdout._shared.checks import require_instance, require_text, shown
from torch_holdout._shared.distributed import on_first_rank, rank_and_world
from torch_holdout._shared.tracebacks import errors_by_type, without_trace
from torch_holdout.accounting import Charge, Concentrated, Pure
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.prediction.mechanisms.base import KnownAccuracy, PredictionMechanism, Voters
from torch_holdout.prediction.plain_inputs import require_plain_inputs
from torch_holdout.prediction.records import TrainingRecords
from torch_holdout.statistics import BoundedMean, ZeroOne
from torch_holdout.training.loaders import HoldoutLoader


def validate(
    ensemble: nn.Module,
    mechanism: PredictionMechanism,
    records: TrainingRecords,
    holdout: ReusableHoldout,
    name: str,
    loader: Iterable[Any],
    *,
    query: str,
    usual: Charge,
) -> Answer:
    r"""Ask a holdout for the expected accuracy of a predictor; charge both accounts or none.

    Guarantee:
        For the holdout as for any statistic. For the training records: with the holdout's noise
        :math:`\sigma`, every comparison and every answer costs :math:`d/\sigma` where
        :math:`d = \tanh(\eta/2) + 1/L` (twice the first term where a neighbour changes two
        members); Gaussian noise costs :math:`d^2/(2\sigma^2)` in rho. For ``NeighbourVotes`` the
        first term is the total variation of noisy counts with and without one record,
        ``accuracy_sensitivity()``: it holds for each sample, whose coins are fresh and independent
        of the records, and so for their mixture (joint quasi-convexity).

    Args:
        ensemble: The members.
        mechanism: A ``SoftMajority``, or ``NeighbourVotes``.
        records: The training records' account, in the holdout's ledger.
        holdout: The holdout; its mechanism must not compare with training values.
        name: A statistic of it for soft values between 0 and 1, larger is better:
            ``th.BoundedMean(0.0, 1.0, mode="max")``.
        loader: The holdout's examples, batches of inputs and labels, each example once; for groups
            in the dataset's order.
        query: A public name of the model, e.g. a run and an epoch: the same name is the same
            answer, free. The weights must not name it, because whether two trainings gave the same
            weights is a fact about the records.
        usual: The predictor's usual charge, which decides the currency of a new account.
    """
    require_text("query", query)
    charge = step_charge(mechanism, records, holdout, name)
    detail = {"holdout": holdout.name, "statistic": name, "mechanism": mechanism.identity()}
    _, world = rank_and_world()

    def ask() -> Answer:
        read = HoldoutLoader(loader, holdout, {name: holdout.statistics[name]})
        sums = holdout.accumulator(name)
        for batch in loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise InvalidArgumentError(
                    f"Expected batches of inputs and labels, but got {type(batch).__name__}. "
                    f"Nothing was released or charged."
                )
            sums.update(expected_accuracy(ensemble, mechanism, *batch))
            if sums.goes_by_place:
                read.require_places(name)
        records.attach(usual)
        most = 2 if holdout.mechanism.compares else 1
        debit = records.debit(charge, json.dumps(detail, sort_keys=True), most=most)
        asked = json.dumps({"records": records.name, "model": query, **mechanism.identity()})
        return holdout._release_for(debit, name, sums, query=asked)

    return on_first_rank(world, lambda: without_trace(ask))


@torch.no_grad()
def expected_accuracy(
    ensemble: nn.Module, mechanism: PredictionMechanism, inputs: Any, target: Tensor
) -> Tensor:
    """Return the probability of the right label for each example. Raw: it goes to a sealed sum.

    A label that is not a class has probability 0. Samples of records are fresh for each example.
    """
    rule = _known(mechanism)
    require_instance("ensemble", ensemble, Voters)
    require_plain_inputs((inputs, target))
    voters = cast(Voters, ensemble.eval())
    table = errors_by_type(lambda: mechanism.total_table(voters, inputs), refused_inputs(inputs))
    if not isinstance(target, Tensor) or table.shape[:1] != target.shape or target.is_complex():
        raise InvalidArgumentError(
            "Expected inputs and labels with one row per example, but their numbers differ, or the "
            "labels are not real numbers in a tensor. Nothing was released or charged."
        )
    target = target.to(table.device)
    classes = mechanism.num_outputs(table) or voters.num_outputs or 0
    known = (target >= 0) & (target < classes)
    labels = torch.where(known, target, 0).to(torch.int64)
    chances = rule.label_chances(table, labels, classes, SystemNoise().uniforms())
    return torch.where(known, chances, 0.0)


def refused_inputs(inputs: Any) -> Callable[[str], InvalidArgumentError]:
    """Return the refusal of inputs that a model with public weights does not take.

    Example:
        >>> print(refused_inputs(torch.zeros(2, 7))("ValueError"))
        Expected inputs that the models take, one query per row, but a model with fresh, public
        weights raised ValueError for (2, 7) torch.float32. ... Nothing was charged.
    """
    tensor = isinstance(inputs, Tensor)  # its shape is shown, never a value
    given = f"{tuple(inputs.shape)} {inputs.dtype}" if tensor else type(inputs).__name__
    return lambda kind: InvalidArgumentError(
        f"Expected inputs that the models take, one query per row, but a model with fresh, public "
        f"weights raised {kind} for {given}. No member was asked about them. Call the model on "
        f"such inputs yourself to see the error's message, which is withheld here because it may "
        f"quote them. Nothing was charged."
    )


def step_charge(
    mechanism: PredictionMechanism, records: TrainingRecords, holdout: ReusableHoldout, name: str
) -> Charge:
    """Return the charge of the training records for a comparison, or an answer, of the holdout."""
    sensitivity = _known(mechanism).accuracy_sensitivity()
    require_instance("holdout", holdout, ReusableHoldout)
    if holdout.seeded and not records.seeded:
        raise InvalidArgumentError(
            "Expected a holdout with noise from the operating system: anyone who knows this "
            "holdout's seed knows the noise that has to protect the training records."
        )
    if holdout.address != records.address:
        raise InvalidArgumentError(
            f"Expected the holdout and the training records in one ledger, so that both are "
            f"charged in one transaction, but they are in {holdout.address} and "
            f"{records.address}. Give the predictor the holdout's ledger."
        )
    rule = holdout.mechanism
    if rule.wants_guess():
        raise InvalidArgumentError(
            "Expected a holdout that does not compare with training values: a training guess is "
            "published without noise. Use guess='last', a Ladder or an answering mechanism."
        )
    statistic = holdout.statistics.get(name) if isinstance(name, str) else None
    soft = isinstance(statistic, BoundedMean) and not isinstance(statistic, ZeroOne)
    accuracy = soft and cast(BoundedMean, statistic).per_example is None
    scale = None if statistic is None else (statistic.low, statistic.high, statistic.mode)
    if not accuracy or scale != (0.0, 1.0, "max"):
        raise InvalidArgumentError(
            f"Expected {shown(name)} to take values between the bounds 0 and 1 where larger is "
            f"better, as an expected accuracy is, but it is not such a statistic among "
            f"{list(holdout.statistics)}. Register th.BoundedMean(0.0, 1.0, mode='max'); ZeroOne "
            f"takes 0 and 1 only. Nothing was charged."
        )
    members = records.neighbours.members_changed
    shift = members * sensitivity + 1 / holdout.accumulator(name).resolution
    units = holdout.size
    if math.isinf(rule.charge_per_step(units)):
        raise InvalidArgumentError(
            "Expected a holdout with noise (sigma > 0): without it, no record is protected."
        )
    # What one example of the holdout moves, 1/units, is what a step is priced for.
    if rule.currency == "rho":
        return Concentrated(rule.charge_per_step(units) * (shift * units) ** 2)
    return Pure(rule.charge_per_step(units) * shift * units)


def _known(mechanism: PredictionMechanism) -> KnownAccuracy:
    if not isinstance(mechanism, KnownAccuracy):
        raise InvalidArgumentError(
            f"Expected a SoftMajority or NeighbourVotes, whose expected accuracy has a known "
            f"sensitivity, but got {type(mechanism).__name__}."
        )
    return mechanism
