"""Answers are charged, committed and drawn in that order, or refused for free."""

import copy
import pickle
import subprocess
import sys
import textwrap
import traceback
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch_holdout.errors import (
    BudgetExhaustedError,
    InvalidArgumentError,
    SealedValueError,
)
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import PrivacyBudget
from torch_holdout.prediction.mechanisms import (
    ConfidentGNMax,
    NoisyMean,
    SoftMajority,
)

from support.builders.members import Members, abstained, queries
from support.builders.predictors import LABELS, make


@pytest.mark.parametrize("mechanism", LABELS, ids=lambda m: type(m).__name__)
def test_labels_are_paid_for_one_by_one(mechanism):
    predictor = make(mechanism)
    bought = predictor.plan().queries
    assert bought > 5
    labels = predictor(queries(5))
    assert labels.shape == (5,)
    assert labels.dtype == torch.int64
    assert ((labels >= -1) & (labels < 3)).all()
    status = predictor.status()
    assert (status.queries, status.queries_left) == (5, bought - 5)
    assert status.epsilon == 4.0
    assert "replacing one record" in status.relation


@pytest.mark.parametrize("mechanism", LABELS, ids=lambda m: type(m).__name__)
def test_the_plan_is_what_can_be_asked(mechanism):
    predictor = make(mechanism, on_exhausted="abstain")
    answered = 0
    while not abstained(predictor(queries(1))):
        answered += 1
    assert answered == predictor.plan().queries
    assert predictor.plan().queries_left == 0


def test_the_plan_touches_no_ledger(address, tmp_path):
    predictor = make(ledger=address)
    assert "buys" in str(predictor.plan())
    assert predictor.status().queries == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("policy", ["raise", "abstain", "fallback"])
def test_a_batch_beyond_the_budget_is_refused_as_a_whole(policy):
    public = nn.Linear(4, 3)
    predictor = make(on_exhausted=policy, fallback=public if policy == "fallback" else None)
    bought = predictor.plan().queries
    predictor(queries(bought - 2))
    before = predictor.status()
    batch = queries(3)
    if policy == "raise":
        with pytest.raises(BudgetExhaustedError, match="3 queries, but 2 queries are left"):
            predictor(batch)
    elif policy == "abstain":
        assert abstained(predictor(batch))
    else:
        assert torch.equal(predictor(batch), public(batch).argmax(1))
    assert predictor.status() == before
    assert ((labels := predictor(queries(2))) >= 0).all(), labels
    assert predictor.status().queries_left == 0


def test_abstaining_for_budget_and_for_lack_of_consensus_differ():
    mechanism = ConfidentGNMax(threshold=1000.0, sigma_check=8.0, sigma_answer=8.0)
    predictor = make(mechanism, on_exhausted="abstain")
    assert (predictor(queries(3)) == -1).all()  # asked, paid, not agreed
    assert predictor.status().queries == 3
    assert (predictor(queries(10_000)) == -2).all()


def test_values_come_out_and_nan_beyond_the_budget():
    mean = NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5)
    ensemble = Members(num_outputs=1)
    predictor = make(mean, ensemble=ensemble, on_exhausted="abstain")
    values = predictor(queries(4))
    assert values.dtype == torch.float64
    assert ((values >= 0) & (values <= 1)).all()
    assert predictor(queries(10_000)).isnan().all()
    vectors = NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5, simplex=True)
    predictor = make(vectors, on_exhausted="abstain")
    assert predictor(queries(4)).shape == (4, 3)
    assert predictor(queries(10_000)).shape == (10_000, 3)


def test_answers_come_as_often_as_their_votes_say():
    """How often the majority's label comes out, against its exact probability on each query.

    Within 5 standard deviations: a false alarm below 1e-6. A twin without votes is caught.
    """
    ensemble, mechanism = Members(num_parts=200), SoftMajority(eta=0.2)
    predictor = make(mechanism, ensemble=ensemble, budget=PrivacyBudget(epsilon=900.0), seed=1)
    x = queries(400)
    table = mechanism.table(torch.cat(list(ensemble.output_chunks(x))))
    majority, labels = table.argmax(1), predictor(x)
    chances = mechanism.chances(table).gather(1, majority[:, None])[:, 0]
    allowed = 5 * float((chances * (1 - chances)).sum().sqrt())
    assert abs(float((labels == majority).sum() - chances.sum())) <= allowed
    blind = torch.arange(400) % 3
    assert abs(float((blind == majority).sum() - chances.sum())) > allowed


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, Fraction])
def test_numbers_of_other_kinds(kind):
    predictor = make(budget=PrivacyBudget(epsilon=kind(4), delta=np.float32(1e-5)))
    predictor(queries(1))
    assert predictor.status().epsilon == 4.0


def test_the_number_of_classes_is_known_after_the_first_answer():
    ensemble = Members()
    ensemble.num_outputs = None
    predictor = make(ensemble=ensemble)
    predictor(queries(1))
    assert predictor.status().queries == 1
    assert (
        make(fingerprint=th.fingerprint(torch.utils.data.TensorDataset(torch.arange(3))))
        .status()
        .renaming_detected
    )


def test_a_fallback_is_public_and_in_eval_mode():
    public = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.9))
    predictor = make(on_exhausted="fallback", fallback=public, budget=PrivacyBudget(epsilon=0.01))
    x = queries(50)
    assert torch.equal(predictor(x), predictor(x))
    broken = make(
        on_exhausted="fallback", fallback=lambda x: 1 / 0, budget=PrivacyBudget(epsilon=0.01)
    )
    with pytest.raises(InvalidArgumentError, match="division by zero"):
        broken(x)


def test_a_failed_commit_gives_and_charges_nothing(address, monkeypatch):
    predictor = make(ledger=address)
    predictor(queries(1))
    answered = []
    monkeypatch.setattr(SoftMajority, "answer", lambda *a: answered.append(a))
    monkeypatch.setattr(
        "torch_holdout.ledger.records.chained", lambda *a: (_ for _ in ()).throw(OSError("full"))
    )
    with pytest.raises(th.HoldoutError, match="OSError") as caught:
        predictor(queries(1))
    assert answered == []
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "without_trace" in frames
    assert not {"_ask", "_answers", "pay"} & set(frames)  # they hold votes
    assert caught.value.__context__ is None
    monkeypatch.undo()
    assert predictor.status().queries == 1


def test_the_charge_is_committed_before_noise_is_drawn(address, monkeypatch):
    predictor = make(ledger=address)
    seen = []
    original = SoftMajority.answer

    def answer(self, table, setting, uniforms):
        seen.append(Ledger(address).records_summary(Ledger(address).find_records("records")))
        return original(self, table, setting, uniforms)

    monkeypatch.setattr(SoftMajority, "answer", answer)
    predictor(queries(7))
    assert seen[0].queries == 7


SERVICE = """
    import sys, torch
    sys.path.insert(0, {tests!r})
    from support.builders.members import Members, queries
    from torch_holdout.prediction import PrivacyBudget, PrivatePredictor
    from torch_holdout.prediction.mechanisms import SoftMajority
    predictor = PrivatePredictor(
        Members(), SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=4.0, delta=1e-5),
        ledger={address!r}, name="records", on_exhausted="abstain")
    answered = 0
    for _ in range(60):
        answered += int((predictor(queries(2)) >= 0).sum())
    print(answered)
"""


@pytest.mark.integration
def test_processes_share_one_budget_exactly(address):
    bought = make(SoftMajority(eta=0.1), ledger=address).plan().queries
    tests = str(Path(__file__).parent.parent)
    code = textwrap.dedent(SERVICE.format(tests=tests, address=address))
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answered = [int(process.communicate(timeout=120)[0]) for process in running]
    assert sum(answered) == bought - bought % 2
    assert make(ledger=address).status().queries == sum(answered)


@pytest.mark.integration
def test_a_killed_service_hands_out_nothing_uncharged(address):
    """What was printed before kill -9 was charged; at most one batch more was."""
    tests = str(Path(__file__).parent.parent)
    code = textwrap.dedent(SERVICE.format(tests=tests, address=address)).replace(
        "answered += int((predictor(queries(2)) >= 0).sum())",
        "predictor(queries(2)); print('answered', flush=True)",
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(5)]
    process.kill()
    lines += process.communicate()[0].splitlines(keepends=True)
    given = 2 * sum(line == "answered\n" for line in lines)
    assert given <= make(ledger=address).status().queries <= given + 2


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.zeros(2, 7), "RuntimeError for \\(2, 7\\)"),
        (torch.zeros(2, 4, dtype=torch.int64), "int64"),
        ("text", "str"),
        (None, "NoneType"),
    ],
)
def test_bad_inputs_cost_nothing(inputs, words):
    predictor = make()
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        predictor(inputs)
    assert "Nothing was charged" in str(caught.value)
    assert predictor.status().queries == 0


def test_no_queries_cost_nothing():
    predictor = make()
    assert predictor(queries(0)).shape == (0,)
    assert predictor.status().queries == 0


def test_outputs_of_another_shape_than_declared_are_refused():
    predictor = make(num_outputs=5)
    with pytest.raises(InvalidArgumentError, match="Expected 5 outputs for each query"):
        predictor(queries(2))
    ensemble = Members()
    ensemble.num_outputs = None
    with pytest.raises(InvalidArgumentError, match="number of classes"):
        make(ensemble=ensemble).plan()
    assert make(ensemble=ensemble, num_outputs=3).plan().queries > 0


def test_nan_logits_vote_for_class_0_silently():
    ensemble = Members(num_parts=50)
    with torch.no_grad():
        ensemble.weight.fill_(torch.nan)
    labels = make(SoftMajority(eta=2.0), ensemble=ensemble, budget=PrivacyBudget(epsilon=100.0))(
        queries(20)
    )
    assert (labels == 0).all()


def test_members_are_in_eval_mode_and_carry_no_gradient():
    predictor = make(
        NoisyMean(low=-1.0, high=1.0, noise="gaussian", sigma=0.2), ensemble=Members(num_outputs=1)
    )
    predictor.train()
    values = predictor(queries(2).requires_grad_())
    assert not values.requires_grad
    assert not predictor.ensemble.training


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_exhausted": "fallback"}, "fallback"),
        ({"fallback": nn.Linear(4, 3)}, "fallback"),
        ({"on_exhausted": "shrug"}, "on_exhausted"),
        ({"cache": -1}, "cache"),
        ({"name": ""}, "name"),
        ({"budget": 2.0}, "budget"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"fingerprint": "abc"}, "fingerprint"),
        ({"ensemble": nn.Linear(4, 3)}, "Voters"),
        ({"mechanism": "vote"}, "PredictionMechanism"),
        ({"mechanism": LABELS[2], "track_private_loss": True}, "SoftMajority only"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make(**options)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, None), (-1, None), (2, 0), (2, 1), (2, 1.5), (float("nan"), None)]
)
def test_budgets_must_be_positive(epsilon, delta):
    with pytest.raises(InvalidArgumentError):
        PrivacyBudget(epsilon=epsilon, delta=delta)


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(InvalidArgumentError, match="delta"):
        make(LABELS[2], budget=PrivacyBudget(epsilon=2.0))(queries(1))


def test_a_budget_that_buys_nothing_says_so():
    predictor = make(SoftMajority(eta=2.0), budget=PrivacyBudget(epsilon=0.5))
    assert "Nothing can be asked" in str(predictor.plan())
    with pytest.raises(BudgetExhaustedError):
        predictor(queries(1))


def test_seeded_noise_repeats_and_is_marked():
    def labels(seed):
        predictor = make(SoftMajority(eta=0.1), seed=seed)
        return torch.cat([predictor(queries(10)), predictor(queries(10))])

    assert torch.equal(labels(1), labels(1))
    assert not torch.equal(labels(1), labels(2))
    assert not torch.equal(labels(1)[:10], labels(1)[10:])
    assert "SEEDED" in str(make(seed=1).status())


def test_nothing_raw_is_shown():
    predictor = make(track_private_loss=True)
    predictor(queries(3))
    shown = f"{predictor!r} {predictor.status()} {predictor.plan()} {predictor.records!r}"
    for value in predictor.ensemble.weight.flatten().tolist():
        assert f"{value:.4f}" not in shown


def test_the_data_dependent_epsilon_is_private():
    agreed = Members(num_parts=60)
    with torch.no_grad():
        agreed.weight.copy_(agreed.weight[:1].expand_as(agreed.weight))
    predictor = make(SoftMajority(eta=0.1), ensemble=agreed, track_private_loss=True)
    with pytest.raises(SealedValueError):
        float(predictor.private_epsilon(1e-5))
    predictor(queries(40))
    found = predictor.private_epsilon(1e-5)
    assert 0 < found.reveal() < 2.0  # unanimous votes cost far less than the cap of 4
    for use in (str, float, bool, int, round, pickle.dumps, lambda v: f"{v:.3f}", lambda v: v < 1):
        if use is str:
            assert str(round(found.reveal(), 3)) not in str(found)
            continue
        with pytest.raises(SealedValueError):
            use(found)
    assert copy.deepcopy(predictor).private_epsilon(1e-5).reveal() < found.reveal()
    with pytest.raises(InvalidArgumentError, match="track_private_loss"):
        make().private_epsilon(1e-5)
