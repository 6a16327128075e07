"""How far released values can be off: our certificate against the published theorems.

Noise is chosen for each theorem as suits it best, in advance; ours is the certificate of a plan.
"""

import argparse
import json
import math

import torch_holdout as th
from torch_holdout.accounting import PrivacyLoss, Pure
from torch_holdout.bounds import sample_splitting, thresholdout_tolerance
from torch_holdout.bounds.private_answers import THEOREMS

FAILURE = 0.05
CELLS = ((1_000, 200, 20), (10_000, 200, 20), (50_000, 1_000, 20), (50_000, 100_000, 100))


def published(size: int, budget: int) -> tuple[float, str]:
    """Return the best theorem about privacy, over the noise."""
    found = {}
    for name, theorem in THEOREMS.items():
        scales = [math.exp(x / 3) for x in range(-36, 2)]
        found[name] = min(
            theorem(
                size,
                PrivacyLoss((Pure(1 / (sigma * size), 2 * budget),)),
                lambda beta, sigma=sigma: sigma * math.log(budget / beta),  # type: ignore[misc]
                FAILURE,
            )
            for sigma in scales
        )
    name = min(found, key=lambda key: found[key])
    return found[name], name


def main() -> None:
    """Print one JSON line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    cells = CELLS[:2] if parser.parse_args().quick else CELLS
    for size, queries, budget in cells:
        facts = {"queries": queries, "budget": budget}
        ours = th.certificate(size=size, failure=FAILURE, purpose="curve", **facts).tolerance
        theorem33 = thresholdout_tolerance(size, failure=FAILURE, **facts)
        tolerance, name = published(size, budget)
        peers = {
            name: tolerance,
            "Theorem 3.3 of the Thresholdout paper": min(1.0, theorem33),
            "sample splitting": min(1.0, sample_splitting(size, queries, FAILURE)),
        }
        for peer, theirs in peers.items():
            print(
                json.dumps(
                    {
                        "benchmark": "certificates",
                        "case": f"n={size}, m={queries}, B={budget}",
                        "peer": peer,
                        "ratio": round(ours / theirs, 3),
                        "better": "lower",
                        "ours": round(ours, 4),
                        "theirs": round(theirs, 4),
                        "unit": "distance",
                    }
                )
            )


if __name__ == "__main__":
    main()
