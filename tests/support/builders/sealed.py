"""Sealed holdouts: runs that stopped, one that is open, and their passes."""

import torch
import torch_holdout as th

RUNS = {"baseline": 0.42, "wide": 0.33, "wide + dropout": 0.24}
STATISTICS = {"val_loss": th.BoundedMean(0.0, 5.0), "val_acc": th.ZeroOne()}


def make_sealed(url="memory://", **changes):
    """A sealed holdout of 400 examples with a loss and an accuracy, and a budget of 5 runs."""
    arguments = {
        "name": "val",
        "size": 400,
        "statistics": STATISTICS,
        "mechanism": th.Sealed(evaluations=40),
        "budget": 5,
    }
    return th.ReusableHoldout(url, **{**arguments, **changes})


def passes(holdout, **means):
    """Sealed sums of a pass: values around a mean loss, zeros and ones of a mean accuracy."""
    found = {}
    for name, mean in means.items():
        found[name] = holdout.accumulator(name)
        places = torch.arange(holdout.size)
        if isinstance(holdout.statistics[name], th.ZeroOne):
            found[name].update(places < round(mean * holdout.size))
        else:
            found[name].update(mean * (1 + 0.5 * torch.cos(3.0 * places)))
    return found


def curve(epoch, floor):
    """Means of a run that fits, and then fits too well."""
    loss = floor + 2.1 * 0.5 ** (epoch / 1.5) + 0.02 * max(0, epoch - 6) ** 1.2
    return {"val_loss": loss, "val_acc": 1 - 0.2 * loss}


def evaluate(run, holdout, epoch, floor, names=None):
    """Evaluate one epoch of a run, for all statistics or some."""
    means = curve(epoch, floor)
    own = {name: means[name] for name in names or holdout.statistics}
    return run.evaluate(passes(holdout, **own), query=f"{floor} {epoch}")


def play(holdout, name, floor, epochs=30, patience=3):
    """A run that ends: by its patience, or after some epochs."""
    stop = None if patience is None else th.Patience("val_loss", patience)
    with holdout.run(stop=stop, name=name) as run:
        for epoch in range(epochs):
            if evaluate(run, holdout, epoch, floor).stop:
                break
    return run


def months_of_runs(url="memory://", runs=60):
    """Silent runs of two evaluations; of some a record bit was asked for, once the best run."""
    mechanism = th.Sealed(evaluations=2)
    holdout = make_sealed(url, size=50, budget=runs + 20, mechanism=mechanism)
    for number in range(runs):
        name, floor = f"width {16 * (1 + number % 32)}, lr 0.003", 0.5 - number % 7 / 50
        run = play(holdout, name, floor, epochs=2, patience=2 if number % 9 == 4 else None)
        if number % 5 == 0:
            run.record()
    holdout.winner()
    return holdout


def sealed_runs(url="memory://", names=tuple(RUNS), **changes):
    """Two runs that patience has stopped, and one that is open after five evaluations."""
    holdout = make_sealed(url, **changes)
    floors = dict(zip(names, RUNS.values(), strict=True))
    *stopped, last = names
    for name in stopped:
        play(holdout, name, floors[name])
    open_run = holdout.run(stop=th.Patience("val_loss", 3), name=last)
    for epoch in range(5):
        evaluate(open_run, holdout, epoch, floors[last])
    return holdout, open_run
