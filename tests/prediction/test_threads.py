"""Threads share models and predictors: every vote is right, and every answer is charged once.

The answers of these tests show all votes (``Loud``), so one wrong vote of one member is seen.
"""

import copy
import os
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.prediction import Partition, PrivacyBudget, SoftMajority
from torch_holdout.prediction.stable.model import fit_stable_model
from torch_holdout.prediction.stable.problem import StableProblem
from torch_holdout.prediction.validation import expected_accuracy

from support.builders.ensembles import ensemble
from support.builders.loud import Loud
from support.builders.members import Members, queries
from support.builders.predictors import make
from support.machines.soak import soak

THREADS = 8
EACH = soak(2000, 24)  # queries of a thread
ROWS = 4
PARTS = Partition(num_parts=6, key="index", seed=7)
BUDGET = PrivacyBudget(epsilon=900.0)


@pytest.fixture(autouse=True)
def _many_switches():
    """Threads change as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def small_cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )


def mlp():
    return nn.Sequential(
        nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
    )


class Branching(nn.Module):
    """A model that vmap cannot run: ``auto`` asks one by one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        return self.layer(x) if float(x.sum()) > -1e9 else x[:, :3]


MODELS = {"cnn": small_cnn, "mlp": mlp, "branching": Branching}
CASES = [(m, b) for m in ("cnn", "mlp") for b in ("vmap", "loop", "auto")] + [("branching", "auto")]
cases = pytest.mark.parametrize(("model", "backend"), CASES)
long = pytest.mark.soak


def made(model, backend, *, trained=True):
    """Return an ensemble whose members differ, with statistics that are no longer the first."""
    found = ensemble(MODELS[model], PARTS, backend=backend, num_outputs=3)
    with torch.no_grad():
        for number, value in enumerate(found.members.buffers()):
            if value.is_floating_point():
                value.add_(queries(value.numel(), 1, seed=number).view(value.shape).abs())
    return found.train(not trained)


def in_threads(work, count=THREADS):
    """Return what each thread made of its number; all start together."""
    start = threading.Barrier(count)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def batches(number):
    return queries(EACH, 36, seed=number).split(ROWS)


@long
@cases
def test_votes_are_those_of_one_thread_and_each_is_charged(model, backend):
    alone = make(Loud(), ensemble=made(model, backend), budget=BUDGET)
    expected = [torch.cat([alone(x) for x in batches(number)]) for number in range(THREADS)]
    found = made(model, backend)
    before = {name: value.clone() for name, value in found.state_dict().items()}
    predictor = make(Loud(), ensemble=found, budget=BUDGET)
    answers = in_threads(lambda number: torch.cat([predictor(x) for x in batches(number)]))
    for one, other in zip(answers, expected, strict=True):
        assert torch.equal(one, other)
    assert predictor.status().queries == THREADS * EACH
    after = found.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@long
@cases
def test_raw_outputs_are_those_of_one_thread(model, backend):
    """In train mode, too: one thread's return to it must not reach another's members."""
    found = made(model, backend, trained=False)
    asked = [queries(ROWS, 36, seed=number) for number in range(THREADS)]
    expected = [found.member_outputs(x) for x in asked]
    calls = soak(100, 4)
    for outputs, right in zip(
        in_threads(lambda n: [found.member_outputs(asked[n]) for _ in range(calls)]),
        expected,
        strict=True,
    ):
        assert all(torch.equal(one, right) for one in outputs)
    assert all(module.training for module in found.members.modules())


@long
@cases
def test_validation_beside_answers_is_right(model, backend):
    """Compared is what goes into the holdout's sealed sums."""
    found = made(model, backend)
    soft, labels = SoftMajority(eta=0.2), torch.arange(ROWS) % 3
    asked = [queries(ROWS, 36, seed=number) for number in range(THREADS)]
    expected = [expected_accuracy(found, soft, x, labels) for x in asked]
    predictor = make(Loud(), ensemble=found, budget=BUDGET)
    votes = [predictor(x) for x in asked]

    def work(number):
        for _ in range(soak(100, 4)):
            if number % 2:
                assert torch.equal(predictor(asked[number]), votes[number])
            else:
                value = expected_accuracy(found, soft, asked[number], labels)
                assert torch.equal(value, expected[number])

    in_threads(work)


def test_validations_of_threads_are_charged_one_by_one(tmp_path):
    url = f"sqlite:///{tmp_path}/both.db"
    predictor = make(SoftMajority(eta=0.2), ensemble=made("mlp", "loop"), ledger=url)
    holdout = th.ReusableHoldout(
        url, name="val", size=8, budget=20, mechanism=th.Ladder(step=0.02, sigma=9.0),
        statistics={"acc": th.BoundedMean(0.0, 1.0, mode="max")},
    )  # fmt: skip
    x, y = queries(8, 36), torch.arange(8) % 3
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    kinds = in_threads(
        lambda n: predictor.validate(holdout, "acc", loader, query=f"model {n}").kind, 4
    )
    assert {*kinds} <= {"release", "guess"}
    assert holdout.status().queries == 4


def test_checkpoints_and_copies_beside_answers_hold_all_members():
    """The members' module once held one member's weights while another thread was asking."""
    found = made("cnn", "loop")
    before = {name: value.clone() for name, value in found.state_dict().items()}
    predictor = make(Loud(), ensemble=found, budget=BUDGET)

    def work(number):
        for x in batches(number):
            if number % 2:
                predictor(x)
                continue
            for state in (found.state_dict(), copy.deepcopy(found).state_dict()):
                assert all(torch.equal(value, before[name]) for name, value in state.items())

    in_threads(work, 4)


def test_predictors_that_share_members_and_copies_of_them():
    found = made("mlp", "vmap")
    predictors = [make(Loud(), ensemble=found, budget=BUDGET, name=f"{n}") for n in range(3)]
    predictors.append(copy.deepcopy(predictors[0]))
    x = queries(ROWS, 36)
    right = predictors[0](x)
    for answers in in_threads(lambda n: [predictors[n % 4](x) for _ in range(6)]):
        assert all(torch.equal(one, right) for one in answers)
    assert [one.status().queries for one in predictors[:3]] == [
        ROWS * (1 + 24), ROWS * 12, ROWS * 12
    ]  # fmt: skip


def test_a_query_that_threads_ask_at_once_is_paid_once():
    predictor = make(Loud(), ensemble=made("mlp", "auto"), budget=BUDGET, cache=1000)
    x = queries(EACH, 36)
    answers = in_threads(lambda n: torch.cat([predictor(part) for part in x.split(ROWS)]))
    assert all(torch.equal(one, answers[0]) for one in answers)
    assert predictor.status().queries == EACH


def test_tenants_of_a_cache_are_kept_apart():
    predictor = make(Loud(), ensemble=Members(), budget=BUDGET, cache=8)
    in_threads(lambda n: [predictor(queries(4, seed=n), tenant=f"{n}") for _ in range(5)])
    assert predictor.status().queries == THREADS * 4


def test_a_budget_that_ends_is_spent_to_the_last_query_and_never_more(tmp_path):
    budget = PrivacyBudget(epsilon=10e-6)  # ten queries
    url = f"sqlite:///{tmp_path}/private.db"
    predictor = make(Loud(), ensemble=Members(), budget=budget, on_exhausted="abstain", ledger=url)
    answers = in_threads(lambda n: [predictor(queries(1)).item() for _ in range(3)])
    answered = [one for part in answers for one in part if one >= 0]
    assert len(answered) == predictor.status().queries == 10


def test_the_first_queries_of_threads_are_priced_alike(monkeypatch):
    """The account was there before its currency: another thread was charged in the wrong one."""
    predictor = make(SoftMajority(eta=0.1), ensemble=Members())
    ledger = predictor.records._ledger
    read = ledger.records_summary

    def slowly(account):
        time.sleep(0.05)
        return read(account)

    monkeypatch.setattr(ledger, "records_summary", slowly)
    in_threads(lambda n: (time.sleep(0.02 * n), predictor(queries(1))), 4)
    plan = predictor.plan()
    assert plan.queries - plan.queries_left == predictor.status().queries == 4


def test_the_private_loss_counts_every_answer():
    options = {"track_private_loss": True, "budget": PrivacyBudget(epsilon=900.0, delta=1e-5)}
    alone, together = (make(SoftMajority(eta=0.1), ensemble=Members(), **options) for _ in "ab")
    for _ in range(THREADS * 5):
        alone(queries(2))
    in_threads(lambda n: [together(queries(2)) for _ in range(5)])
    one, other = (p.private_epsilon(1e-5).reveal() for p in (alone, together))
    assert other == pytest.approx(one, rel=1e-12)


def test_a_stable_model_answers_threads_alike():
    problem = StableProblem(size=40, regularisation=0.5, loss="logistic")
    x = queries(40, 5)
    model = fit_stable_model((x, (x[:, 0] > 0).long()), problem)
    right = next(model.output_chunks(x))
    found = in_threads(lambda n: [next(model.output_chunks(x)) for _ in range(10)])
    assert all(torch.equal(one, right) for part in found for one in part)


def test_outputs_that_are_not_read_to_the_end_keep_nobody_waiting():
    found = made("mlp", "loop")
    chunks = found.output_chunks(queries(3, 36))
    next(chunks)
    assert torch.is_grad_enabled()  # the generator's own mode stays inside of it
    predictor = make(Loud(), ensemble=found, budget=BUDGET)
    waiting = threading.Thread(target=lambda: predictor(queries(2, 36)), daemon=True)
    waiting.start()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert len(list(chunks)) == 5


def test_a_fallback_may_ask_the_predictor_again():
    inner = make(Loud(), ensemble=Members(), budget=BUDGET)

    def fallback(x):
        return inner(x)

    predictor = make(
        Loud(), ensemble=inner.ensemble, budget=PrivacyBudget(epsilon=1e-7), cache=10,
        name="small", on_exhausted="fallback", fallback=fallback,
    )  # fmt: skip
    x = queries(3)
    assert all(torch.equal(one, inner(x)) for one in in_threads(lambda n: predictor(x), 4))


def test_locks_are_not_copied_or_pickled():
    members = Members()
    predictor = make(Loud(), ensemble=members, budget=BUDGET)
    with members.members_lock:
        again = pickle.loads(pickle.dumps(members))
        for other in (again, copy.deepcopy(members)):
            done = threading.Thread(
                target=lambda one=other: make(Loud(), ensemble=one, budget=BUDGET)(queries(2)),
                daemon=True,
            )
            done.start()
            done.join(timeout=60)
            assert not done.is_alive()
        assert predictor(queries(2)).shape == (2,)  # the same thread may go on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
def test_a_child_may_ask_although_a_thread_of_its_parent_was_asking():
    found = made("mlp", "loop")
    predictor, x = make(Loud(), ensemble=found, budget=BUDGET), queries(2, 36)
    right = predictor(x)
    inside, ready = threading.Event(), threading.Event()

    def hold():
        with found.members_lock:
            inside.set()
            ready.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(found.member_outputs(x), found.member_outputs(x)) else 1)
    ready.set()
    holder.join()
    assert _ended(child) == 0
    assert torch.equal(predictor(x), right)


def _ended(child):
    for _ in range(600):
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(code)
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
