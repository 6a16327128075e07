"""Two real gloo ranks: each example once, one charge, one number, no rank left waiting."""

import datetime
import os
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist
import torch_holdout as th
from torch import nn
from torch.utils.data import DistributedSampler
from torch_holdout.errors import HoldoutError
from torchmetrics.classification import BinaryAUROC

from support.builders.holdouts import correct, make_holdout
from support.builders.mechanisms import MECHANISMS, guess_of

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(
    ["torch_holdout.training.metric", "support.builders.holdouts", "torch"]
)
SIZE = 501
EXACT = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")


def joined(rank, world, port, results, scenario, url):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(
        "gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60)
    )
    try:
        results.put((rank, scenario(rank, world, url)))
    except BaseException as error:
        results.put((rank, f"{type(error).__name__}: {error}"))
        if scenario is not peer_dies:
            raise
    finally:
        dist.destroy_process_group()


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(scenario, url, world=2):
    results, port = context.Queue(), free_port()
    processes = [
        context.Process(target=joined, args=(rank, world, port, results, scenario, url))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert not process.is_alive()
    return [found[rank] for rank in range(world)]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def holdout_at(url, **changes):
    return make_holdout(url, **{"size": SIZE, "mechanism": EXACT, "grid": SIZE, **changes})


def batches(rank, world, values, size=40):
    indices = list(DistributedSampler(values, world, rank, shuffle=False))
    return values[indices].split(size)


def whole_pass(rank, world, url):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    metric = th.ReusableHoldoutMetric(holdout_at(url), "val_acc", model=model)
    for batch in batches(
        rank, world, correct(1, SIZE)
    ):  # only example 0, which the padding repeats
        metric.update(batch)
    return float(metric.compute()), metric.answer.kind


@pytest.mark.parametrize("world", [2, 4])
def test_padding_counts_once_and_all_ranks_agree(url, world):
    found = run(whole_pass, url, world)
    assert found == [(1 / SIZE, "release")] * world
    status = holdout_at(url).status()
    assert (status.queries, status.releases) == (1, 1)


def without_model(rank, world, url):
    metric = th.ReusableHoldoutMetric(holdout_at(url), "val_acc")
    values = []
    for _ in range(2):
        metric.reset()
        for batch in batches(rank, world, correct(200, SIZE)):
            metric.update(batch)
        values.append(float(metric.compute()))
    return values


def test_one_charge_per_pass_without_a_model(url):
    assert run(without_model, url) == [[200 / SIZE] * 2] * 2
    assert holdout_at(url).status().queries == 2


def uneven(rank, world, url):
    metric = th.ReusableHoldoutMetric(holdout_at(url, size=10), "val_acc")
    metric.update(correct(6, 6) if rank == 0 else correct(4, 4))
    return str(metric.compute().item())


def nothing_on_one_rank(rank, world, url):
    metric = th.ReusableHoldoutMetric(holdout_at(url, size=10), "val_acc")
    if rank == 0:
        metric.update(correct(10, 10))
    else:
        metric._update_count = 1  # torchmetrics would warn
    return str(metric.compute().item())


def everything_on_each_rank(rank, world, url):
    """As under HF's Trainer and accelerate, whose gathered values every rank has."""
    found = []
    scores = torch.rand(SIZE, generator=torch.Generator().manual_seed(0))
    columns = {"val_acc": (correct(200, SIZE),), "auroc": (scores, correct(200, SIZE).long())}
    statistics = {"val_acc": th.ZeroOne(), "auroc": th.Blockwise(BinaryAUROC(), 5, 0.0, 1.0)}
    holdout = holdout_at(url, statistics=statistics, mechanism=th.Ladder(step=0.0), grid=2**20)
    for name, rows in columns.items():
        metric = th.ReusableHoldoutMetric(holdout, name, version="all rows")
        for part in zip(*(column.split(40) for column in rows), strict=True):
            metric.update(*part)
        found.append(float(metric.compute()))
    return [*found, holdout.status().queries]


@pytest.mark.parametrize("world", [2, 3])
def test_all_rows_on_every_rank_are_one_copy(url, world, tmp_path):
    alone = everything_on_each_rank(0, 1, f"sqlite:///{tmp_path}/alone.db")
    assert alone[0] == pytest.approx(200 / SIZE, abs=1e-5)
    assert 0 < alone[1] < 1
    assert run(everything_on_each_rank, url, world) == [alone] * world


def other_rows_on_each_rank(rank, world, url):
    """As many rows as there are examples, but not the same ones, or not in the same order."""
    statistics = {"val_acc": th.ZeroOne(), "auroc": th.Blockwise(BinaryAUROC(), 5, 0.0, 1.0)}
    holdout = holdout_at(url, statistics=statistics)
    scores, target = torch.linspace(0, 1, SIZE), correct(200, SIZE).long()
    found = []
    for name, rows in (
        ("val_acc", (correct(200 + rank, SIZE),)),
        ("auroc", (scores.roll(rank), target.roll(rank))),
        ("auroc", (scores, target) if rank else (scores.double(), target)),
    ):
        sums = holdout.accumulator(name, rank=rank, world=world)
        sums.update(*rows)
        try:
            holdout.release(name, sums, query="q")
        except HoldoutError as error:
            found.append((type(error).__name__, "they differ" in str(error)))
    return [*found, holdout.status().queries]


def test_copies_that_differ_are_refused(url):
    expected = [*[("PartialPassError", True)] * 3, 0]
    assert run(other_rows_on_each_rank, url) == [expected] * 2


def nothing_on_one_rank_with_a_model(rank, world, url):
    model = nn.Linear(2, 2)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.5)
    metric = th.ReusableHoldoutMetric(holdout_at(url, size=10), "val_acc", model=model)
    if rank == 0:
        metric.update(correct(10, 10))
    else:
        metric._update_count = 1
    return str(metric.compute().item())


@pytest.mark.parametrize(
    "scenario",
    [uneven, nothing_on_one_rank, nothing_on_one_rank_with_a_model],
)
def test_what_is_not_the_usual_sharding_is_a_partial_pass(url, scenario):
    assert run(scenario, url) == ["nan", "nan"]


def unpadded(rank, world, url):
    metric = th.ReusableHoldoutMetric(holdout_at(url), "val_acc")
    for batch in correct(200, SIZE)[rank::world].split(40):
        metric.update(batch)
    return float(metric.compute())


def test_shards_without_padding_are_a_whole_pass(url):
    assert run(unpadded, url) == [200 / SIZE] * 2


def guess_on_one_rank(rank, world, url):
    mechanism = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")
    metric = th.ReusableHoldoutMetric(holdout_at(url, mechanism=mechanism), "val_acc")
    for batch in batches(rank, world, correct(200, SIZE)):
        metric.update(batch)
    if rank == 0:
        metric.update_train(correct(40, 100))
    return float(metric.compute())


def test_a_guess_that_only_one_rank_has_counts(url):
    assert run(guess_on_one_rank, url) == [pytest.approx(0.4)] * 2


def one_rank_errs(rank, world, url):
    holdout = holdout_at(url)
    sums = holdout.accumulator("val_acc", rank=rank, world=world)
    for batch in batches(rank, world, correct(200, SIZE)):
        sums.update(batch)
    try:
        holdout.release("val_acc", sums, query=5 if rank == 1 else "q")
    except HoldoutError as error:
        return type(error).__name__
    return "answered"


def test_an_error_on_one_rank_reaches_the_others(url):
    assert run(one_rank_errs, url) == ["HoldoutError", "InvalidArgumentError"]
    assert holdout_at(url).status().queries == 0


def error_of(metric, rank, world):
    """Run a whole pass and name the error that computing raises."""
    for batch in batches(rank, world, correct(200, SIZE)):
        metric.update(batch)
    try:
        metric.compute()
    except HoldoutError as error:
        return type(error).__name__
    return "answered"


def different_weights(rank, world, url):
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, float(rank))
    nn.init.zeros_(model.bias)
    metric = th.ReusableHoldoutMetric(holdout_at(url), "val_acc", model=model)
    return error_of(metric, rank, world)


def test_ranks_with_different_weights_are_refused(url):
    assert run(different_weights, url) == ["WeightsChangedError"] * 2
    assert holdout_at(url).status().queries == 0


def rank_zero_fails(rank, world, url):
    holdout = holdout_at(url, budget=6 if rank == 0 else 5)  # the ledger has 5
    metric = th.ReusableHoldoutMetric(holdout, "val_acc")
    return error_of(metric, rank, world)


def test_a_failure_on_rank_zero_reaches_all(url):
    holdout_at(url).status()
    assert run(rank_zero_fails, url) == ["HoldoutMismatchError"] * 2


def peer_dies(rank, world, url):
    holdout = holdout_at(url)
    dist.barrier()  # both have joined: on a busy machine one may leave before
    if rank == 1:
        return "left"
    metric = th.ReusableHoldoutMetric(holdout, "val_acc")
    for batch in batches(rank, world, correct(200, SIZE)):
        metric.update(batch)
    try:
        metric.compute()
    except HoldoutError as error:
        return f"{error} {error.__context__}"
    return "answered"


def test_a_rank_that_is_gone_is_an_error_without_values(url):
    message = run(peer_dies, url)[0]
    assert "could not answer" in message
    assert message.endswith("None")
    assert str(100 * 65536) not in message


def with_every_mechanism(rank, world, url):
    """Four sharded queries to each mechanism, with seeded noise; what this rank got to see."""
    seen = []
    for name, mechanism in MECHANISMS.items():
        holdout = holdout_at(url, name=name, mechanism=mechanism, grid=64, seed=4)
        for count in (200, 205, 400, 90):
            sums = holdout.accumulator("val_acc", rank=rank, world=world)
            for batch in batches(rank, world, correct(count, SIZE)):
                sums.update(batch)
            answer = holdout.release(
                "val_acc", sums, query=f"query {count}", **guess_of(mechanism, 0.4)
            )
            seen.append((name, answer.value, answer.kind, answer.budget_left))
    return seen


def test_every_mechanism_says_the_same_on_one_and_two_ranks(url, tmp_path):
    first, second = run(with_every_mechanism, url)
    assert first == second
    assert len(first) == 4 * len(MECHANISMS)
    assert with_every_mechanism(0, 1, f"sqlite:///{tmp_path}/alone.db") == first
    for name, mechanism in MECHANISMS.items():
        account = holdout_at(url, name=name, mechanism=mechanism, grid=64, seed=4)
        assert account.status().queries == 4  # one charge, not one per rank


def blockwise(rank, world, url):
    """AUROC by blocks of 501 sharded, padded examples; the guess loader may miss a rank."""
    generator = torch.Generator().manual_seed(1)
    target = (torch.rand(SIZE, generator=generator) < 0.4).long()
    preds = torch.sigmoid(target + torch.randn(SIZE, generator=generator))
    seen = []
    for rule in ("last", "train"):
        holdout = holdout_at(
            url,
            name=rule,
            statistics={"auroc": th.Blockwise(1 - (1 - BinaryAUROC()), 7, 0.0, 1.0)},
            mechanism=th.Thresholdout(threshold=0.01, sigma=0.0, guess=rule),
            grid=2**20,
        )
        sums = holdout.accumulator("auroc", rank=rank, world=world)
        shards = batches(rank, world, torch.arange(SIZE))
        for shard in shards:
            sums.update(preds[shard], target[shard])
        guess = {}
        if rule == "train":
            guess = {"guess": holdout.accumulator("auroc", role="guess")}
            if rank == 0:  # as if the guess loader had a single batch
                guess["guess"].update(preds[:100], 1 - target[:100])
        seen.append(holdout.release("auroc", sums, query="weights", **guess).value)
    return seen


def test_blocks_are_the_same_on_one_and_more_ranks(url, tmp_path):
    alone = blockwise(0, 1, f"sqlite:///{tmp_path}/alone.db")
    for world in (2, 3):
        other = f"sqlite:///{tmp_path}/{world}.db"
        assert run(blockwise, other, world) == [alone] * world
