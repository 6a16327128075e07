from functools import partial

import lightning.pytorch
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import PrivacyBudget, distill
from torch_holdout.prediction import lightning as in_lightning
from torch_holdout.prediction import pytorch_lightning as in_pytorch_lightning
from torch_holdout.prediction.mechanisms import ConfidentGNMax, NoisyMean, SoftMajority

import pytorch_lightning
from support.builders.members import Members, queries

NAMESPACES = [
    (lightning.pytorch, in_lightning.PrivatePredictor),
    (pytorch_lightning, in_pytorch_lightning.PrivatePredictor),
]
ADAM = partial(torch.optim.Adam, lr=0.05)
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def trainer(namespace=lightning.pytorch, epochs=3):
    return namespace.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def make(cls=in_lightning.PrivatePredictor, mechanism=None, ledger="memory://", epsilon=100.0):
    agreed = Members(num_parts=40)
    with torch.no_grad():
        agreed.weight.copy_(agreed.weight[:1].expand_as(agreed.weight))
    rule = mechanism or SoftMajority(eta=0.5)
    return cls(agreed, rule, budget=PrivacyBudget(epsilon=epsilon), ledger=ledger, name="records")


def loader(count=60, seed=1):
    return DataLoader(TensorDataset(queries(count, seed=seed)), batch_size=7)


@pytest.mark.parametrize(("namespace", "cls"), NAMESPACES, ids=["lightning", "pytorch_lightning"])
def test_a_student_learns_what_the_members_agree_on(namespace, cls):
    torch.manual_seed(0)
    predictor, student = make(cls), nn.Linear(4, 3)
    found = distill(predictor, loader(80), student, trainer=trainer(namespace, 30), optimizer=ADAM)
    assert found.student is student
    assert predictor.status().queries == 80  # once each, not once per epoch
    assert found.epsilon == pytest.approx(80 * predictor.charge().epsilon, rel=1e-9)
    assert "replacing one record" in found.relation
    fresh = queries(500, seed=9)
    truth = next(predictor.ensemble.output_chunks(fresh))[0].argmax(1)
    assert (student(fresh).argmax(1) == truth).double().mean() > 0.85
    assert "80 labels" in str(found)


def test_a_student_that_is_a_lightning_module_is_trained_as_it_is():
    class Student(lightning.pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = nn.Linear(4, 3), 0

        def training_step(self, batch, batch_idx):
            self.seen += len(batch[0])
            return functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    student = Student()
    distill(make(), loader(50), student, trainer=trainer())
    assert student.seen == 150


def test_a_public_set_beyond_the_budget_is_refused_before_anything_is_charged():
    predictor = make(epsilon=10.0)
    with pytest.raises(BudgetExhaustedError, match="60 labels, but"):
        distill(predictor, loader(60), nn.Linear(4, 3), trainer=trainer(), optimizer=ADAM)
    assert predictor.status().queries == 0


def test_labels_without_consensus_are_left_out():
    rule = ConfidentGNMax(threshold=39.0, sigma_check=1.0, sigma_answer=5.0)
    predictor = in_lightning.PrivatePredictor(
        Members(num_parts=40), rule, budget=PrivacyBudget(epsilon=900.0, delta=1e-5),
        ledger="memory://", name="records",
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="agreed on none"):
        distill(predictor, loader(20), nn.Linear(4, 3), trainer=trainer(), optimizer=ADAM)


def test_an_interrupted_labelling_goes_on_where_it_stopped(tmp_path, monkeypatch):
    url, file = f"sqlite:///{tmp_path}/private.db", tmp_path / "labels.pt"
    predictor = make(ledger=url)
    original, calls = type(predictor).label, []

    def label(self, inputs):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(inputs))
        return original(self, inputs)

    run = partial(
        distill, student=nn.Linear(4, 3), trainer=trainer(), optimizer=ADAM, batch_size=16,
        labels=file,
    )  # fmt: skip
    monkeypatch.setattr(type(predictor), "label", label)
    with pytest.raises(KeyboardInterrupt):
        run(predictor, loader(60))
    assert predictor.status().queries == 32
    kept = torch.load(file)["labels"]
    monkeypatch.undo()
    found = run(predictor, loader(60))
    assert predictor.status().queries == 60
    assert torch.equal(found.labels[:32], kept)
    run(predictor, loader(60))  # everything is labelled: nothing is charged
    assert predictor.status().queries == 60
    with pytest.raises(InvalidArgumentError, match="holds others'"):
        run(predictor, loader(60, seed=5))
    other = make(ledger=url, mechanism=SoftMajority(eta=0.01))  # would claim a smaller epsilon
    with pytest.raises(InvalidArgumentError, match="holds others'"):
        run(other, loader(60))
    file.write_bytes(b"cut off")
    with pytest.raises(InvalidArgumentError, match="holds others'"):
        run(predictor, loader(60))
    ledger = Ledger(url)
    assert ledger.records_summary(ledger.find_records("records"), check=True).queries == 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": None}, "optimizer"),
        ({"batch_size": 0}, "batch_size"),
        ({"public_loader": []}, "at least one batch"),
        ({"public_loader": [["text"]]}, "tensor"),
        ({"predictor": nn.Linear(4, 3)}, "predictor"),
        ({"student": nn.Linear(5, 3)}, "student"),
        ({"trainer": None}, "Trainer"),
        ({"trainer": trainer(pytorch_lightning)}, "Trainer of the predictor's"),
        ({"labels": "/nowhere/labels.pt"}, "file system refused"),
    ],
)
def test_bad_arguments_cost_nothing(options, words):
    predictor = make()
    given = {
        "predictor": predictor, "public_loader": loader(), "student": nn.Linear(4, 3),
        "trainer": trainer(), "optimizer": ADAM,
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match=words):
        distill(**(given | options))
    assert predictor.status().queries == 0


def test_several_processes_would_label_anew():
    class Wide(lightning.pytorch.Trainer):
        world_size = 2

    wide = Wide(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False
    )
    predictor = make()
    with pytest.raises(InvalidArgumentError, match="one process"):
        distill(predictor, loader(), nn.Linear(4, 3), trainer=wide, optimizer=ADAM)
    assert predictor.status().queries == 0


def test_values_make_no_labels():
    mean = NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5)
    predictor = make(mechanism=mean)
    with pytest.raises(InvalidArgumentError, match="answers with labels"):
        distill(predictor, loader(), nn.Linear(4, 3), trainer=trainer(), optimizer=ADAM)


@pytest.mark.parametrize(("namespace", "cls"), NAMESPACES, ids=["lightning", "pytorch_lightning"])
def test_trainer_predict(namespace, cls):
    predictor = make(cls)
    labels = torch.cat(trainer(namespace).predict(predictor, loader(20)))
    assert labels.shape == (20,)
    assert predictor.status().queries == 20
    pairs = DataLoader(TensorDataset(queries(6), torch.zeros(6)), batch_size=3)
    assert len(torch.cat(trainer(namespace).predict(predictor, pairs))) == 6


@pytest.mark.parametrize(("namespace", "cls"), NAMESPACES, ids=["lightning", "pytorch_lightning"])
def test_trainer_predict_refuses_at_once_what_the_budget_cannot_cover(namespace, cls):
    predictor = make(cls, epsilon=10.0)
    left = predictor.plan().queries_left
    with pytest.raises(BudgetExhaustedError, match=f"{left + 1} queries, but {left}"):
        trainer(namespace).predict(predictor, loader(left + 1))
    assert predictor.status().queries == 0
    trainer(namespace).predict(predictor, loader(left))
    assert predictor.status().queries_left == 0
