"""Objects whose methods are called with random arguments, and which calls are not made, and why."""

import functools

import torch
import torch_holdout as th
from torch_holdout import accounting, audit, bounds, ledger, prediction, tuning
from torch_holdout.lightning import HoldoutGuard
from torch_holdout.mechanisms import Release
from torch_holdout.service.client import Quota, RemoteAnswer

from support.builders.challenges import make_challenged, wrong_on
from support.builders.ensembles import PARTS, data, ensemble
from support.builders.holdouts import correct, make_holdout, sums_of
from support.builders.mechanisms import MECHANISMS
from support.builders.nearest import VOTES, make_records
from support.builders.predictors import LABELS, make
from support.builders.samples import (
    CHARGES,
    answer_of,
    asked,
    fresh_name,
    fresh_trial,
    predictor,
    sealed_holdout,
    sealed_sweep,
    shared_holdout,
    shared_ledger,
    shared_report,
    shared_stable_model,
    trained_holdout,
)
from support.builders.stable import problem_of

LIGHTNING = "Lightning or torch calls it, with its own objects"
ABSTRACT = "abstract; its methods are called on every mechanism"
SKIPPED = {
    "HoldoutGuard.": LIGHTNING,
    "HoldoutTrainer": "trains a model, or makes a trainer of one",
    "HoldoutTrainer.": "trains a model, or makes a trainer of one",
    "MemberParallelStrategy.": LIGHTNING,
    "PartitionedDataModule.on_": LIGHTNING,
    "PartitionedEnsemble.backward": LIGHTNING,
    "PartitionedEnsemble.configure_": LIGHTNING,
    "PartitionedEnsemble.look_at_batch": LIGHTNING,
    "PartitionedEnsemble.on_": LIGHTNING,
    "PartitionedEnsemble.own_members": LIGHTNING,
    "PartitionedEnsemble.setup": LIGHTNING,
    "PartitionedEnsemble.training_step": LIGHTNING,
    "PartitionedEnsemble.verify_isolation": "trains two ensembles",
    "verify_isolation": "trains several ensembles",
    "PrivatePredictor.on_": LIGHTNING,
    "ReusableHoldoutMetric.plot": "matplotlib draws it",
    "StableModel.set_extra_state": LIGHTNING,
    "EmbeddedRecords.set_extra_state": LIGHTNING,
    "PartitionedEnsemble.set_extra_state": LIGHTNING,
    "Mechanism": ABSTRACT,
    "Mechanism.": ABSTRACT,
    "PredictionMechanism": ABSTRACT,
    "PredictionMechanism.": ABSTRACT,
    "RemoteBoard": "made by remote",
    "RemoteBoard.": "asks a server (tests/service/client)",
    "RemoteHoldout": "made by RemoteBoard.holdout",
    "RemoteHoldout.": "asks a server (tests/service/client)",
    "Refusal.fits": "reads a row of the ledger's own table",
    "Summary.": "reads a row of the ledger's own table",
    "BoundedMean.total": "of Blockwise only",
    "CrossEntropy.total": "of Blockwise only",
    "Ratio.total": "of Blockwise only",
    "GroupedMean.total": "of Blockwise only",
    "ZeroOne.total": "of Blockwise only",
    "LoggedMean.total": "of Blockwise only",
    "StableERM.table": "gets the outputs of a certified model only",
    "StableERM.public_table": "gets the outputs of a certified model only",
    "StableERM.total_table": "gets the outputs of a certified model only",
    "StableERM.answer": "gets the outputs of a certified model only",
    "StableERM.require_voters": "gets the outputs of a certified model only",
}
# The door or the predictor calls these on a mechanism or a statistic, with what it has checked.
CHECKED_BEFORE = frozenset(
    word
    for line in (
        "accumulator answer budget_charges chances channel charge charge_of charge_per_step",
        "decide epsilon_per_step guess_for levels settled member_outputs noise_scale output_chunks",
        "board_submission board_submissions register_board",
        "known_data label_chances learn_data member_chunks nearest num_outputs private_loss",
        "public_outputs public_table register require_mechanism sampled_counts",
        "register_records release_charge require_voters sampler_error price epsilon_spent",
        "table to_normalised to_user total total_table units value_shape",
    )
    for word in line.split()
)
KEPT_CHECKS = frozenset(["ReusableHoldout.accumulator", "PrivatePredictor.charge"])
# Functions of the caller's: what they raise is theirs, what they return is checked.
CALLED = frozenset(
    [
        *("size", "charge", "model_fn", "loss", "optimizer", "scheduler", "per_example", "metric"),
        *("progress", "train", "values", "fallback", "key", "as_pair", "embed"),
    ]
)
ALWAYS_GIVEN = frozenset(["audit:progress"])
TUNE = "only in a trial of Ray Tune, or with its results (tests/tuning/test_ray.py)"
REFUSES = "it always refuses, and says what to call instead"
OF_A_BOARD = "of an account that BoardHoldout makes (tests/ledger/test_boards.py)"
NEVER_RETURNS = {
    "Ledger.board": OF_A_BOARD,
    "Ledger.board_head": OF_A_BOARD,
    "Ledger.board_reading": OF_A_BOARD,
    "Ledger.board_submission": OF_A_BOARD,
    "Ledger.board_submissions": OF_A_BOARD,
    "remote": "takes a board's address; random ones are refused",
    "ReusableHoldoutMetric.merge_state": REFUSES,
    "Sealed.decide": REFUSES,
    "Run": "made by ReusableHoldout.run",
    "Closing.load_best": "needs weights that a guard has kept (tests/training/sealed)",
    "EmbeddedRecords.forward": REFUSES,
    "EmbeddedRecords.member_chunks": REFUSES,
    "EmbeddedRecords.output_chunks": REFUSES,
    "EmbeddedRecords.require_mechanism": REFUSES,
    "PartitionedEnsemble.forward": REFUSES,
    "PartitionedEnsemble.predict_step": REFUSES,
    "ray.claim": TUNE,
    "ray.closed_results": TUNE,
    "ray.front": TUNE,
    "ray.ranking": TUNE,
    "ray.report": TUNE,
    "ray.reporting": TUNE,
    "SealedTrial.evaluate": "only inside sharing (tests/tuning/test_optuna_sealed.py)",
    "reask": "needs the winner's own weights (tests/tuning/test_optuna.py)",
    "distill": "trains; called with a Trainer it refuses",
    "audit": "runs for seconds; stopped before its first part",
}
MAKE = {
    "RemoteAnswer": lambda g: RemoteAnswer(
        submission="9f2c",
        kind="release",
        better=True,
        value=0.84,
        interval=None,
        values={"accuracy": 0.84},
        quota=Quota(submissions_left=4),
        position=1,
        chain="7be1",
    ),
    "ReusableHoldout": trained_holdout,
    "ReusableHoldout.prices": lambda g: make_holdout(mechanism=th.Sealed(evaluations=10)),
    "ReusableHoldout.run": lambda g: make_holdout(mechanism=th.Sealed(evaluations=10)),
    "ReusableHoldout.winner": lambda g: ended_run(g).holdout,
    "Run.record": lambda g: ended_run(g),
    "ReusableHoldoutMetric": lambda g: th.ReusableHoldoutMetric(make_holdout(), "val_acc"),
    "MultiplicativeWeights": lambda g: th.MultiplicativeWeights(
        "memory://",
        name=fresh_name(g),
        histogram=torch.tensor([10, 20, 5, 15]),
        threshold=0.1,
        sigma=0.05,
        updates=5,
    ),
    "HoldoutGuard": lambda g: HoldoutGuard(make_holdout()),
    "Ledger": lambda g: shared_ledger(),
    "Verification": lambda g: ledger.verify(shared_ledger().address),
    "Report": lambda g: shared_report(),
    "PrivatePredictor": predictor,
    "PartitionedEnsemble": lambda g: ensemble(),
    "PartitionedDataModule": lambda g: data(),
    "StableModel": lambda g: shared_stable_model(),
    "EmbeddedRecords": lambda g: make_records(),
    "NeighbourVotes": lambda g: VOTES,
    "Partition": lambda g: PARTS,
    "Plan": lambda g: th.plan(size=1000, queries=50),
    "Certificate": lambda g: shared_holdout().certificate(),
    "Status": lambda g: shared_holdout().status(),
    "Prices": lambda g: make_holdout(mechanism=th.Sealed(evaluations=10)).prices(),
    "Price": lambda g: shared_holdout().prices().choices["release"],
    "Answer": answer_of,
    "Blockwise": lambda g: th.Blockwise(torch.mean, blocks=10, low=0.0, high=1.0),
    "BoundedMean": lambda g: th.BoundedMean(0.0, 2.0),
    "CrossEntropy": lambda g: th.CrossEntropy(high=5.0),
    "LoggedMean": lambda g: th.LoggedMean(0.0, 2.0, batch_size=10),
    "Ratio": lambda g: th.Ratio(th.ZeroOne(), th.BoundedMean(1.0, 2.0), 0.0, 1.0),
    "GroupedMean": lambda g: th.GroupedMean(0.0, 2.0, groups=[i % 10 for i in range(50)]),
    "ZeroOne": lambda g: th.ZeroOne(),
    "PrivacyLoss": lambda g: accounting.PrivacyLoss((g.choice(CHARGES), g.choice(CHARGES))),
    "PrivacyBudget": lambda g: prediction.PrivacyBudget(epsilon=4.0, delta=1e-5),
    "Neighbours": lambda g: prediction.Neighbours(relation="replace-one", unit="record"),
    "NoisyMean": lambda g: prediction.NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=1.0),
    "StableERM": lambda g: prediction.StableERM(problem=problem_of(), epsilon=1.0),
    "Ledger.register": lambda g: ledger.Ledger("memory://"),
    "Ledger.register_records": lambda g: ledger.Ledger("memory://"),
    "Ledger.register_board": lambda g: ledger.Ledger("memory://"),
    "PrivatePredictor.private_epsilon": lambda g: make(
        name=fresh_name(g), seed=3, track_private_loss=True
    ),
    "PrivatePredictor.validate": lambda g: make(name=fresh_name(g), seed=3),
    "ReusableHoldout.challenge": lambda g: make_holdout(mechanism=th.Sealed(evaluations=10)),
    "Challenge": lambda g: make_challenged().challenge("acc", wrong_on(9), query="a"),
    "Closing": lambda g: closed_holdout(),
    "Outcome": lambda g: closed_holdout().runs[0].outcome,
    "Run": lambda g: sealed_run(g),
    "Patience": lambda g: th.Patience("val_acc", patience=3),
    "Sealed": lambda g: th.Sealed(evaluations=10),
    "Overlap": lambda g: th.overlap([1, 2, 3], [2, 3, 4, 5]),
    "SharedTrial.value": lambda g: reported_trial(g),
    "SharedTrial.values": lambda g: reported_trial(g),
    "SealedTrial": lambda g: sealed_trial(g),
    "FrontPoint": lambda g: tuning.optuna.front(*sealed_sweep(), ["val_acc"])[0],
    "SharedTrial": lambda g: tuning.optuna.SharedTrial(fresh_trial(g), shared_holdout(), "val_acc"),
    "Query": asked,
    "Release": lambda g: Release(3, 10),
    "Row": lambda g: audit.Row("an answer", "exact", "epsilon", 1.0, 0.5),
    "ThresholdoutPlan": lambda g: bounds.published.thresholdout_plan(
        tolerance=0.1, failure=0.05, queries=10, budget=5
    ),
    **{type(one).__name__: functools.partial(lambda one, g: one, one) for one in CHARGES},
    **{type(one).__name__: functools.partial(lambda one, g: one, one) for one in LABELS},
    **{
        type(one).__name__: functools.partial(lambda one, g: one, one)
        for one in MECHANISMS.values()
    },
}


def sealed_run(generator):
    """A run of a sealed holdout of its own, with one evaluation."""
    holdout = make_holdout(name=fresh_name(generator), mechanism=th.Sealed(evaluations=10))
    run = holdout.run(stop=th.Patience("val_acc", patience=2))
    run.evaluate({"val_acc": sums_of(holdout, correct(20))}, query="model 20")
    run.holdout = holdout  # for arguments
    return run


def ended_run(generator):
    """The same, ended."""
    run = sealed_run(generator)
    run.end()
    return run


@functools.cache
def closed_holdout():
    """A closed holdout with one run."""
    holdout = make_holdout(name="closed", mechanism=th.Sealed(evaluations=10))
    with holdout.run(stop=th.Patience("val_acc", patience=2)) as run:
        run.evaluate({"val_acc": sums_of(holdout, correct(20))}, query="model 20")
    return holdout.close()


def reported_trial(generator):
    """A trial that has a value."""
    shared = tuning.optuna.SharedTrial(fresh_trial(generator), shared_holdout(), "val_acc")
    shared.report(answer_of(generator), step=1)
    return shared


def sealed_trial(generator):
    """A trial on a sealed holdout whose display has shown something."""
    trial = fresh_trial(generator)
    shared = tuning.optuna.SealedTrial(trial, sealed_holdout(), "val_acc", "display_acc")
    shared.report(0.5, step=2**40)
    return shared


def reason_to_skip(place):
    """Why a function is not called at random, or None."""
    fits = (
        reason
        for start, reason in SKIPPED.items()
        if place == start or (start[-1] in "._" and place.startswith(start))
    )
    return next(fits, None)
