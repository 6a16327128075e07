"""A budget that ends, and labels that are lost, are said."""

import logging

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.prediction import PrivacyBudget, distill

from support.builders.members import Members, abstained, queries
from support.builders.predictors import make


@pytest.mark.parametrize(("policy", "words"), [("abstain", "abstains"), ("fallback", "fallback")])
def test_the_end_of_a_budget_is_said_once(policy, words, caplog):
    public = nn.Linear(4, 3) if policy == "fallback" else None
    predictor = make(
        on_exhausted=policy, fallback=public, budget=PrivacyBudget(epsilon=0.01), name="visits"
    )
    with caplog.at_level(logging.WARNING, logger="torch_holdout"):
        for _ in range(3):
            answers = predictor(queries(2))
    (said,) = caplog.messages
    assert "'visits' does not cover 2 queries" in said
    assert words in said
    assert abstained(answers) == (policy == "abstain")


def test_a_budget_that_lasts_says_nothing(caplog):
    with caplog.at_level(logging.WARNING, logger="torch_holdout"):
        make(on_exhausted="abstain")(queries(2))
    assert caplog.messages == []


def test_a_fallback_that_fails_says_that_nothing_was_charged():
    predictor = make(
        on_exhausted="fallback", fallback=lambda x: 1 / 0, budget=PrivacyBudget(epsilon=0.01)
    )
    with pytest.raises(InvalidArgumentError, match="Nothing was charged"):
        predictor(queries(2))


@pytest.mark.filterwarnings("ignore")  # Lightning's, about workers
@pytest.mark.parametrize("kept", [True, False])
def test_a_stop_between_labels_says_what_becomes_of_those_that_were_paid(kept, tmp_path):
    class Busy(Members):
        """Another process takes the rest of the budget after the second batch."""

        asked = 0

        def output_chunks(self, inputs):
            self.asked += 1
            if self.asked == 3:
                other = make(ledger=address)
                other(queries(other.plan().queries_left))
            return super().output_chunks(inputs)

    address = f"sqlite:///{tmp_path}/private.db"
    predictor = make(ensemble=Busy(), ledger=address)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **options)
    labels = tmp_path / "labels.pt" if kept else None
    words = "labels.pt: the same call goes on" if kept else "are lost: pass labels="
    with pytest.raises(BudgetExhaustedError, match=words) as caught:
        distill(
            predictor, DataLoader(TensorDataset(queries(5)), 5), nn.Linear(4, 3),
            trainer=trainer, optimizer=torch.optim.SGD, batch_size=1, labels=labels,
        )  # fmt: skip
    assert "The 2 labels before this batch were charged" in str(caught.value)
