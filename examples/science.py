"""The reusable-holdout experiment of Dwork et al. (Science 2015): a table and a picture.

    python examples/science.py            # about a minute
    python examples/science.py --repetitions 100 --size 10000 --features 10000

The second is the paper's size and takes about ten minutes on two cores. Look at the standard
holdout: with no signal at all it claims far more than 50 %, Thresholdout far less. Leaves
science.png.
"""

import argparse
from pathlib import Path

from experiments.science import SHIFTED, AlgorithmOne, Case, run
from experiments.science_picture import draw, table
from rich.progress import Progress


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--size", type=int, default=4000, help="examples per set")
    parser.add_argument("--features", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("science.png"))
    arguments = parser.parse_args()

    cases = [
        Case(size=arguments.size, features=arguments.features, signal=signal)
        for signal in (0, min(SHIFTED, arguments.features))
    ]
    with Progress(transient=True) as bar:
        task = bar.add_task("repetitions", total=len(cases) * arguments.repetitions)
        results = [
            run(
                case,
                repetitions=arguments.repetitions,
                seed=arguments.seed,
                progress=lambda: bar.advance(task),
            )
            for case in cases
        ]

    print(table(results))
    budget = max(1, arguments.features // 10)
    epsilon = AlgorithmOne(size=arguments.size, seed=0, budget=budget).epsilon
    print(
        f"\n'Thresholdout as published' has no budget and no guarantee. Algorithm 1 with a budget "
        f"of {budget} releases is {epsilon:.0f}-differentially private in exact arithmetic: too "
        f"much to certify anything. When the budget is spent it gives the training value, and the "
        f"last column says in how many runs that was so. Few selected features are not protected: "
        f"while training set and holdout differ by less than the threshold, the training value is "
        f"the answer."
    )
    draw(results, arguments.output)
    print(f"\nPicture: {arguments.output}")


if __name__ == "__main__":
    main()
