"""A predictor on records: its account, cache, validation, threads, Trainer and student."""

import copy
import threading
from functools import partial

import pytest
import torch
import torch_holdout as th
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import BudgetExhaustedError, HoldoutMismatchError, InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import (
    NeighbourVotes,
    PrivacyBudget,
    PrivatePredictor,
    SoftMajority,
    distill,
)
from torch_holdout.prediction.mechanisms import NO_CONSENSUS, OUT_OF_BUDGET
from torch_holdout.prediction.validation import expected_accuracy, step_charge

from support.builders.members import Members
from support.builders.nearest import BUDGET, VOTES, clusters, make_predictor, make_records
from support.machines.soak import soak

QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip
SHARP = NeighbourVotes(rate=1.0, k=20, sigma=1.0)
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def test_answers_are_charged_and_right():
    predictor = make_predictor(SHARP, budget=PrivacyBudget(epsilon=900.0, delta=1e-5))
    x, y = clusters(100, seed=5)
    assert (predictor(x) == y).double().mean() > 0.9
    assert predictor.status().queries == 100
    assert "SEEDED" not in str(predictor.status())
    assert "over the nearest records, 3 outputs" in str(predictor.plan())
    assert "adding or removing one record, buys" in str(predictor.plan())


@pytest.mark.parametrize("declared", [2, 4])
def test_another_number_of_classes_than_the_records_have_is_refused_before_a_charge(declared):
    """A label beyond the counts would raise: an answer without noise."""
    predictor = make_predictor(SHARP, num_outputs=declared)
    for act in (lambda: predictor(clusters(4)[0]), predictor.plan):
        with pytest.raises(InvalidArgumentError, match=r"gave 3\. Nothing was charged"):
            act()
    assert make_predictor(SHARP).status().queries == 0


def test_a_budget_buys_what_the_plan_says():
    predictor = make_predictor(budget=PrivacyBudget(epsilon=1.0, delta=1e-5))
    bought = predictor.plan().queries
    predictor(clusters(bought)[0])
    with pytest.raises(BudgetExhaustedError):
        predictor(clusters(1)[0])
    silent = make_predictor(
        budget=PrivacyBudget(epsilon=0.01, delta=1e-5), on_exhausted="abstain", name="other"
    )
    assert silent(clusters(2)[0]).tolist() == [OUT_OF_BUDGET] * 2


def test_an_unclear_vote_is_an_abstention_that_is_charged():
    predictor = make_predictor(NeighbourVotes(rate=1.0, k=9, sigma=2.0, margin=1000))
    assert predictor(clusters(4)[0]).tolist() == [NO_CONSENSUS] * 4
    assert predictor.status().queries == 4


def test_a_repeat_is_the_stored_answer_until_records_change():
    predictor = make_predictor(cache=100)
    x = clusters(5)[0]
    first = predictor(x)
    assert torch.equal(predictor(x), first)
    assert predictor.status().queries == 5
    records = predictor.ensemble
    for number, change in enumerate(
        [
            lambda: records.remove([0]),
            lambda: records.add(torch.zeros(1, 4), [1], ids=["new"]),
            lambda: records.load_state_dict(copy.deepcopy(records.state_dict())),
        ]
    ):
        change()
        predictor(x)
        predictor(x)
        assert predictor.status().queries == 10 + 5 * number  # asked anew, once


def test_records_that_change_keep_their_account(address):
    x, y = clusters(60)
    made = make_predictor(ledger=address, fingerprint=th.fingerprint(TensorDataset(x, y)))
    made(clusters(3)[0])
    made.ensemble.remove([0, 1, 2])
    made(clusters(2)[0])
    assert made.status().queries == 5

    part = TensorDataset(x[3:], y[3:])
    later = make_predictor(
        records=make_records(57), ledger=address, fingerprint=th.fingerprint(part)
    )
    assert later.status().queries == 5
    later(clusters(2)[0])
    assert make_predictor(ledger=address).status().queries == 7  # also without a fingerprint
    renamed = make_predictor(ledger=address, name="others", fingerprint=th.fingerprint(part))
    with pytest.raises(HoldoutMismatchError, match="does not refill"):
        renamed(clusters(1)[0])


def test_accounts_of_another_relation_or_unit_are_refused(address):
    make_predictor(ledger=address)(clusters(1)[0])
    users = make_predictor(records=make_records(unit="user"), ledger=address)
    with pytest.raises(HoldoutMismatchError, match="unit: stored record, given user"):
        users(clusters(1)[0])
    budget = {"budget": BUDGET, "ledger": address}
    PrivatePredictor(Members(), SoftMajority(eta=0.1), name="ensemble", **budget)(clusters(1)[0])
    mixed = make_predictor(name="ensemble", ledger=address)
    with pytest.raises(HoldoutMismatchError, match="relation: stored replace-one"):
        mixed(clusters(1)[0])
    grown = PrivatePredictor(
        Members(relation="add-remove"), SoftMajority(eta=0.1), name="records", **budget
    )
    grown(clusters(1)[0])  # the same records, the same relation: one account
    assert grown.status().queries == 2


def test_the_ledger_does_not_learn_how_many_records_there_are(address):
    def stored(count, url):
        predictor = make_predictor(records=make_records(count), ledger=url, seed=3)
        predictor(clusters(4)[0])
        ledger = Ledger(url)
        account = ledger.find_records("records")
        summary = ledger.records_summary(account)
        charges = [(c.purpose, c.detail, c.queries, c.charge) for c in ledger.charges(account)]
        return summary, charges

    assert stored(5, address) == stored(301, address.replace("private", "other"))


def test_copies_share_the_account(address):
    predictor = make_predictor(ledger=address)
    predictor(clusters(2)[0])
    copied = copy.deepcopy(predictor)
    copied(clusters(3)[0])
    assert predictor.status().queries == 5


def holdout_for(predictor, address, mechanism=None):
    return th.ReusableHoldout(
        address,
        name="val",
        size=40,
        statistics={"val_acc": th.BoundedMean(0.0, 1.0, mode="max")},
        mechanism=mechanism or th.Ladder(step=0.02, sigma=0.05),
        budget=5,
    )


def test_a_holdout_validates_in_one_charge(address):
    predictor = make_predictor(SHARP, ledger=address, budget=PrivacyBudget(epsilon=90, delta=1e-5))
    holdout = holdout_for(predictor, address)
    loader = DataLoader(TensorDataset(*clusters(40, seed=6)), 16)
    answer = predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert answer.kind == "release"
    assert answer.value > 0.6
    charge = step_charge(SHARP, predictor.records, holdout, "val_acc")
    moved = SHARP.accuracy_sensitivity() + 1 / holdout.accumulator("val_acc").resolution
    assert charge.epsilon == pytest.approx(moved / 0.05)
    assert predictor.status().queries == 1
    predictor.ensemble.remove([0])
    again = predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert (again.kind, again.value) == ("repeat", answer.value)


def test_the_expected_accuracy_is_that_of_answers():
    """Means of 4,000 answers and of 4,000 chances: six standard deviations, 2e-9."""
    mechanism = NeighbourVotes(rate=0.5, k=6, sigma=3.0)
    predictor = make_predictor(mechanism, budget=PrivacyBudget(epsilon=900, delta=1e-5), seed=4)
    x, y = clusters(4000, seed=7)
    right = (predictor(x) == y).double()
    chances = expected_accuracy(predictor.ensemble, mechanism, x, y)
    assert abs(right.mean() - chances.mean()) < 6 * (right.std() ** 2 / 4000 * 2) ** 0.5
    wrong = expected_accuracy(predictor.ensemble, mechanism, x[:3], torch.tensor([-1, 3, 99]))
    assert wrong.tolist() == [0.0] * 3


def test_one_record_moves_no_expected_accuracy_by_more_than_is_charged():
    mechanism = NeighbourVotes(rate=1.0, k=5, sigma=1.0)
    x, y = clusters(30, seed=8)
    records = make_records(20)
    before = expected_accuracy(records, mechanism, x, y)
    largest = 0.0
    for name in range(20):
        less = copy.deepcopy(records)
        less.remove([name])
        after = expected_accuracy(less, mechanism, x, y)
        largest = max(largest, float((after - before).abs().max()))
    assert 0.3 * mechanism.accuracy_sensitivity() < largest <= mechanism.accuracy_sensitivity()


def test_a_trainer_predicts_and_refuses_what_it_cannot_finish():
    predictor = make_predictor()
    loader = DataLoader(TensorDataset(*clusters(20)), 8)
    batches = Trainer(**QUIET).predict(predictor, loader)
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert predictor.status().queries == 20
    many = DataLoader(TensorDataset(clusters(5000)[0]), 500)
    with pytest.raises(BudgetExhaustedError):
        Trainer(**QUIET).predict(predictor, many)
    assert predictor.status().queries == 20


def test_a_student_learns_from_the_records():
    torch.manual_seed(0)
    predictor = make_predictor(SHARP, budget=PrivacyBudget(epsilon=900, delta=1e-5))
    public = DataLoader(TensorDataset(clusters(60, seed=11)[0]), 20)
    student = nn.Linear(4, 3)
    adam = partial(torch.optim.Adam, lr=0.1)
    trainer = Trainer(max_epochs=20, **QUIET)
    distilled = distill(predictor, public, student, trainer=trainer, optimizer=adam)
    assert predictor.status().queries == 60
    assert distilled.relation == "adding or removing one record"
    x, y = clusters(300, seed=12)
    assert (student(x).argmax(1) == y).double().mean() > 0.85


def test_other_expected_accuracies_are_refused():
    with pytest.raises(InvalidArgumentError, match="SoftMajority or NeighbourVotes"):
        expected_accuracy(make_records(), object(), *clusters(2))


def test_threads_ask_while_records_come_and_go():
    """Each answer is charged, and each search sees one state of the store: no row is lost."""
    rounds, predictor = soak(400, 25), make_predictor(budget=PrivacyBudget(epsilon=900, delta=1e-5))
    records, failed = predictor.ensemble, []
    x = clusters(3, seed=2)[0]

    def ask():
        for _ in range(rounds):
            listed = records.nearest(x, 64)
            seen = {int(count) for count in (listed >= 0).sum(1)}
            failed.extend(seen - {60, 61} | (seen if len(seen) > 1 else set()))
            predictor(x)

    def change():
        for number in range(rounds):
            records.add(torch.zeros(1, 4), [number % 3], ids=[1000 + number])
            records.remove([1000 + number])

    def running(act):
        try:
            act()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=running, args=(act,)) for act in (ask, ask, ask, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert predictor.status().queries == 3 * rounds * 3
    assert int((records.nearest(x, 64) >= 0).sum()) == 3 * 60


def test_precision_settings_and_autocast_do_not_change_the_order():
    records = make_records(embed=nn.Identity())
    x = clusters(20, seed=3)[0]
    expected = records.nearest(x, 60)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            assert torch.equal(records.nearest(x, 60), expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_votes_of_a_private_budget_are_those_of_the_mechanism():
    """The mechanism is asked once for each batch, with the table of the store."""
    predictor = make_predictor(VOTES, seed=1)
    again = make_predictor(VOTES, records=predictor.ensemble, seed=1)
    x = clusters(30)[0]
    assert torch.equal(predictor(x), again(x))
    assert "SEEDED" in str(predictor.status())
