"""A plain PyTorch loop with a guarded validation accuracy, on scikit-learn's bundled digits.

    python examples/plain_loop.py                        # a few seconds
    python examples/plain_loop.py --ledger holdout.db    # twice: the second time all are repeats

Look at the column "what it is": only a release reads the holdout and costs one of the budget. A
second run finds the ledger of the first; it is seeded, so its weights are the same and their
answers free. Without --ledger, the ledger is in a new temporary folder. It prints (the noise, and
with it which answers are releases, differs from run to run):

    epoch  val_acc  what it is  releases left
        1    0.680  release     19
        2    0.828  release     18
        3    0.875  release     17
        4    0.875  guess       17
        ...
       10    0.938  release     15

    holdout 'digits-val': 797 examples, 15 of 20 releases left
    With 95 % confidence every released value so far is within 0.184 (normalised) of the ...
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch_holdout as th
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def digits(seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Return 1,000 training and 797 validation examples."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, val = order[:1000], order[1000:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[val], y[val])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    ledger = arguments.ledger or Path(tempfile.mkdtemp()) / "holdout.db"

    train_set, val_set = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-val",
        size=len(val_set),
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.04, sigma=0.004, guess="last"),
        budget=20,
        fingerprint=th.fingerprint(val_set),
    )
    metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=model, on_exhausted="freeze")

    print("epoch  val_acc  what it is  releases left")
    for epoch in range(1, arguments.epochs + 1):
        model.train()
        for x, y in DataLoader(train_set, batch_size=50, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        model.eval()
        metric.reset()
        with torch.no_grad():
            for x, y in DataLoader(val_set, batch_size=200):
                metric.update(model(x), y)
        value = metric.compute()
        print(f"{epoch:5d}  {value:7.3f}  {metric.answer.kind:10s}  {metric.answer.budget_left}")

    print(f"\n{holdout.status()}\n\n{holdout.certificate()}\n\nLedger: {ledger}")


if __name__ == "__main__":
    main()
