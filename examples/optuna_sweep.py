"""A raw, a live and a sealed Optuna study, on labels that are coin flips.

Optuna tunes how twenty models are blended. The labels are noise, so no blend is better than 50 %;
the raw holdout claims more. The live one tells the sampler guarded values. The sealed one lets it
read a display, and shows nothing until it is closed: then it names the winner with an interval. A
study of your own has the same shape as `sealed_sweep` or `guarded_sweep` in
examples/experiments/sweep.py; with Lightning, put `shared.pruning(guard)` next to the guard instead
of calling `shared.report`.

    python examples/optuna_sweep.py       # about twenty seconds
    python examples/optuna_sweep.py --ledger holdout.db

Look at what each holdout claims beside the accuracy on fresh data. Leaves optuna_sweep.png, and the
live study's ledger if you name one: a second run with it repeats free answers and asks for the
winner once more.
"""

import argparse
from pathlib import Path

from experiments.sweep import BUDGET, Coins, guarded_sweep, raw_sweep, sealed_sweep
from experiments.sweep_picture import draw


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--size", type=int, default=2000, help="holdout examples")
    parser.add_argument("--seed", type=int, default=0, help="of the data and the sampler")
    parser.add_argument("--ledger", help="a file; default: none, in memory")
    parser.add_argument("--output", type=Path, default=Path("optuna_sweep.png"))
    arguments = parser.parse_args()
    ledger = f"sqlite:///{arguments.ledger}" if arguments.ledger else "memory://"

    coins = Coins(arguments.size, arguments.seed)
    raw = raw_sweep(coins, trials=arguments.trials, seed=arguments.seed)
    guarded = guarded_sweep(coins, trials=arguments.trials, seed=arguments.seed, url=ledger)
    sealed = sealed_sweep(coins, trials=arguments.trials, seed=arguments.seed)
    print(f"{arguments.trials} trials on {arguments.size} labels that are coin flips\n")
    print(f"  raw holdout claims       {raw.claimed:6.1%}   on fresh data {raw.fresh:6.1%}")
    print(f"  guarded holdout claims   {guarded.claimed:6.1%}   on fresh data {guarded.fresh:6.1%}")
    print(f"  sealed holdout claims    {sealed.claimed:6.1%}   on fresh data {sealed.fresh:6.1%}")
    print(f"  releases spent           {guarded.spent} of {BUDGET}\n\nThe guarded claim:")
    print(guarded.claim)
    if guarded.again is not None:
        print(f"\nThe winner, asked once more:\n{guarded.again}")
    print(f"\nThe sealed study's winner, after closing:\n{sealed.claim}")
    draw(raw, guarded, arguments.output, size=arguments.size)
    print(f"\nPicture: {arguments.output}")


if __name__ == "__main__":
    main()
