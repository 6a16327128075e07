"""Private votes of the nearest of 50,000 records: against a plain search, and scikit-learn's.

10,000 queries, one thread, interleaved, medians of processor time, so that other programs on the
machine hardly count. The embedding is ready: what counts is the search, the coins, the noise and,
for us, the account.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from _measure import asked_quick, medians, report, timed
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch_holdout.prediction import (
    EmbeddedRecords,
    NeighbourVotes,
    PrivacyBudget,
    PrivatePredictor,
)

RECORDS, QUERIES, CLASSES = 50_000, 4_000, 10
BATCH = 1_000
ALL_VOTE = NeighbourVotes(rate=1.0, k=350, sigma=50.0)
SAMPLED = NeighbourVotes(rate=0.2, k=60, sigma=14.0)
BUDGET = PrivacyBudget(epsilon=1000.0, delta=1e-5)


def points(count: int, dimensions: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return points around one centre for each class, and their classes."""
    centres = torch.randn(CLASSES, dimensions, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return centres[labels] + torch.randn(count, dimensions, generator=generator), labels


def private(dimensions: int, rule: NeighbourVotes) -> Callable[[Tensor], Tensor]:
    """Return what answers, and is charged for each batch, ours."""
    records = EmbeddedRecords(nn.Identity(), num_classes=CLASSES)
    records.add(*points(RECORDS, dimensions, seed=1))
    name = f"records of {dimensions} numbers, {rule.k} votes"
    return PrivatePredictor(records, rule, budget=BUDGET, ledger="memory://", name=name)


def plain(dimensions: int, votes: int) -> Callable[[Tensor], Tensor]:
    """Return a search in single precision without noise, as one would write it."""
    x, y = points(RECORDS, dimensions, seed=1)
    normal = nn.functional.normalize(x)

    def answers(queries: Tensor) -> Tensor:
        found = []
        for block in queries.split(64):
            nearest = (nn.functional.normalize(block) @ normal.T).topk(votes, dim=1).indices
            counts = torch.zeros(len(block), CLASSES).scatter_add_(
                1, y[nearest], torch.ones(nearest.shape)
            )
            found.append(counts.argmax(dim=1))
        return torch.cat(found)

    return answers


def scikit(dimensions: int, votes: int) -> Callable[[Tensor], np.ndarray]:
    """Return scikit-learn's search of all records, without noise."""
    x, y = points(RECORDS, dimensions, seed=1)
    model = KNeighborsClassifier(votes, algorithm="brute", metric="cosine", n_jobs=1)
    model.fit(x.numpy(), y.numpy())
    return lambda queries: model.predict(queries.numpy())


def in_batches(answer: Callable[[Tensor], object], queries: Tensor) -> Callable[[], object]:
    """Return what asks all queries, a batch at a time."""
    return lambda: [answer(batch) for batch in queries.split(BATCH)]


def compare(dimensions: int, queries: int, repetitions: int, peers: bool) -> None:
    """Print what one query costs with all records voting, with a sample, and elsewhere."""
    x = points(queries, dimensions, seed=2)[0]
    rules = {"all vote": ALL_VOTE, "a fifth is sampled": SAMPLED}
    theirs = {"plain topk, no privacy": in_batches(plain(dimensions, ALL_VOTE.k), x)}
    if peers:
        theirs["scikit-learn brute force, no privacy"] = in_batches(
            scikit(dimensions, ALL_VOTE.k), x[: queries // 10]
        )
    ours = {name: in_batches(private(dimensions, rule), x) for name, rule in rules.items()}
    tried = [*ours.values(), *theirs.values()]
    spent = medians(*(timed(act, time.process_time) for act in tried), repetitions=repetitions)
    each = dict(zip([*ours, *theirs], (1e6 * s / queries for s in spent), strict=True))
    for name in each:
        if "scikit" in name:
            each[name] *= 10  # it answered a tenth
    for name in ours:
        for peer in theirs:
            report(
                "neighbour_votes",
                case=f"{RECORDS:,} records of {dimensions} numbers, {name}",
                peer=peer,
                ours=each[name],
                theirs=each[peer],
                unit="us of processor time per query",
                queries_per_second_of_one_core=round(1e6 / each[name]),
            )


def main() -> None:
    """Measure 64 to 256 numbers; in a hurry 64 only, with fewer queries."""
    quick = asked_quick(__doc__)
    torch.set_num_threads(1)
    for dimensions in (64,) if quick else (64, 128, 256):
        compare(dimensions, 1_000 if quick else QUERIES, 1 if quick else 3, peers=not quick)


if __name__ == "__main__":
    main()
