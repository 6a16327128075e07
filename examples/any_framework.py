"""scikit-learn without a tensor: a grid search whose holdout stays sealed, then a few live answers.

    python examples/any_framework.py                        # a few seconds
    python examples/any_framework.py --ledger holdout.db    # twice: closed, and the answers repeat

Look at the two columns: the search is decided by values that nobody saw before closing, and each
has an interval that holds although the best was picked. The live account on a second holdout
answers by value; asked again about the same fitted models, in another process too, it repeats
itself for free, because th.digest names a model by its content. Without --ledger, the ledger is in
a new temporary folder.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch_holdout as th
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import ParameterGrid

GRID = ParameterGrid({"max_depth": [3, 6, 12], "max_features": [4, 16]})


def digits(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return training rows, a holdout for the search and one for live answers."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    parts = np.split(order, [600, 1200])
    return [(data.data[part] / 16, data.target[part]) for part in parts]


def fits(rows: np.ndarray, labels: np.ndarray) -> list[RandomForestClassifier]:
    """Fit one forest for each point of the grid."""
    return [RandomForestClassifier(40, random_state=0, **at).fit(rows, labels) for at in GRID]


def search(
    ledger: str, models: list[RandomForestClassifier], rows: np.ndarray, labels: np.ndarray
) -> int:
    """Evaluate all candidates in one sealed run, close, and return the number of the best."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-search",
        size=len(labels),
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=len(models)),
        budget=1,
        fingerprint=th.fingerprint(list(zip(rows, labels, strict=True))),
    )
    if holdout.budget_left:
        with holdout.run(best="val_acc") as run:
            for model in models:
                right = model.predict(rows) == labels  # one value for each example
                run.evaluate({"val_acc": right}, query=th.digest(model))
    closing = holdout.close()
    print("max_depth  max_features  val_acc  interval")
    for at, value in zip(GRID, closing.curve(), strict=True):
        shown = f"[{value.low:.3f}, {value.high:.3f}]"
        print(f"{at['max_depth']:9d}  {at['max_features']:12d}  {value.value:7.3f}  {shown}")
    return closing.best.evaluation - 1


def ask(
    ledger: str, models: list[RandomForestClassifier], rows: np.ndarray, labels: np.ndarray
) -> None:
    """Ask a live account about each model, by value."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{ledger}",
        name="digits-live",
        size=len(labels),
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.04, sigma=0.004, guess="last"),
        budget=6,
        fingerprint=th.fingerprint(list(zip(rows, labels, strict=True))),
    )
    print("\nval_acc  what it is  releases left")
    for model in models:
        answer = holdout.ask("val_acc", model.predict(rows) == labels, query=th.digest(model))
        print(f"{answer.value:7.3f}  {answer.kind:10s}  {answer.budget_left}")
    print(f"\n{holdout.status()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file; default: a new one")
    arguments = parser.parse_args()
    ledger = arguments.ledger or str(Path(tempfile.mkdtemp()) / "holdout.db")
    train, searched, live = digits()
    models = fits(*train)
    best = search(ledger, models, *searched)
    print(f"best: {GRID[best]}")
    ask(ledger, models, *live)
    print(f"\nLedger: {ledger}")


if __name__ == "__main__":
    main()
