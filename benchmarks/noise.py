"""Our integer noise against OpenDP's, and against numpy's floats (which are not private).

Ours and OpenDP's read the operating system's or a cryptographic generator; numpy's generators are
fast and predictable, and the last bits of its floats tell the true value. One thread, CPU time.
"""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import opendp.prelude as dp
import torch
from _measure import asked_quick, medians, report, timed
from torch_holdout._noise.streams import SystemNoise

DOOR = 0.001 * 10_000 * 65_536  # the door's scale: sigma, examples, levels of one example
VOTES = 20.0
BATCH = 10_000
SINGLE = 200  # draws in one sample of single draws
OPENDP_BATCH = 1_000
Draw = Callable[[], object]


def opendp(law: str, scale: float, batch: int | None) -> Draw:
    """Return OpenDP's discrete sampler as a measurement of zeros."""
    atom = dp.atom_domain(T="i64")
    make = getattr(dp.m, f"make_{law}")
    if batch is None:
        measurement = make(atom, dp.absolute_distance(T="i64"), scale=scale)
        return partial(measurement, 0)
    vector = dp.vector_domain(atom), dp.l1_distance(T="i64")
    return partial(make(*vector, scale=scale), [0] * batch)


def geometric_difference(generator: np.random.Generator, scale: float) -> np.ndarray:
    """Draw the same integer law with numpy."""
    success = -np.expm1(-1 / scale)
    return generator.geometric(success, BATCH) - generator.geometric(success, BATCH)


def compare(case: str, sides: dict[str, tuple[Draw, int, int]], repetitions: int) -> None:
    """Print draws per second; ours is the first side, each with its calls and draws in a call."""
    samples = [
        timed(partial(repeated, draw, calls), process_time) for draw, calls, _ in sides.values()
    ]
    times = medians(*samples, repetitions=repetitions)
    draws = [calls * size for _, calls, size in sides.values()]
    ours, *others = (count / time for count, time in zip(draws, times, strict=True))
    for peer, theirs in zip(list(sides)[1:], others, strict=True):
        report(
            "noise",
            case=case,
            peer=peer,
            ours=ours,
            theirs=theirs,
            unit="draws/s",
            better="higher",
        )


def repeated(draw: Draw, calls: int) -> None:
    """Draw many times."""
    for _ in range(calls):
        draw()


def main() -> None:
    """Print one JSON line for each law and peer."""
    repetitions = 3 if asked_quick(__doc__) else 15
    torch.set_num_threads(1)
    dp.enable_features("contrib")
    numpy, stream = np.random.default_rng(), SystemNoise().stream("benchmark")
    batch = SystemNoise().uniforms("benchmark")
    for law, ours, floats in (
        ("laplace", stream.laplace, numpy.laplace),
        ("gaussian", stream.gaussian, numpy.normal),
    ):
        sides = {
            "ours": (partial(ours, DOOR), SINGLE, 1),
            "OpenDP": (opendp(law, DOOR, None), SINGLE, 1),
            "numpy, floats": (partial(floats, 0.0, DOOR), SINGLE, 1),
        }
        compare(f"one discrete {law.capitalize()} draw, scale {DOOR:.0f}", sides, repetitions)
    sides = {
        "ours": (partial(batch.laplace, VOTES, (BATCH,)), 1, BATCH),
        "OpenDP": (opendp("laplace", VOTES, OPENDP_BATCH), 1, OPENDP_BATCH),
        "numpy, floats": (partial(numpy.laplace, 0.0, VOTES, BATCH), 1, BATCH),
        "numpy, difference of geometrics": (partial(geometric_difference, numpy, VOTES), 1, BATCH),
    }
    compare(f"{BATCH} discrete Laplace draws, scale {VOTES:.0f}", sides, repetitions)
    sides = {
        "ours": (partial(batch.normal, (BATCH,)), 1, BATCH),
        "numpy, floats": (partial(numpy.normal, 0.0, 1.0, BATCH), 1, BATCH),
    }
    compare(f"{BATCH} normal draws, floats of 62 bits", sides, repetitions)


if __name__ == "__main__":
    main()
