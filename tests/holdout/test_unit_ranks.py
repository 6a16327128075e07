"""Two real gloo ranks with groups, text, dictionaries and queries: the numbers of one process."""

import datetime
import os
import socket
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist
import torch_holdout as th
from torch.utils.data import DistributedSampler
from torch_holdout.errors import HoldoutError

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "torch"])
SIZE = 31
IDS = [f"patient {(i * i) % 7}" for i in range(SIZE)]
NUMBERS = torch.tensor([(i * i) % 7 for i in range(SIZE)])
VALUES = torch.rand(SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TEXTS = [f"row {i} has {i % 5} words" for i in range(SIZE)]
BOXES = [{"scores": VALUES[i : i + 1 + i % 3], "label": i} for i in range(SIZE)]


def words(texts, values):
    return sum(len(t) for t in texts) / 40 / len(texts) * float(values.mean())


def boxes(rows):
    sizes = [float(row["scores"].sum()) * (1 + row["label"] % 4) for row in rows]
    return {"map": max(sizes) / 20}


def first_of_group(values, ids):
    return float(values[ids == ids[0]].mean())


STATISTICS = {
    "grouped": th.GroupedMean(0.0, 1.0, groups=IDS),
    "texts": th.Blockwise(words, 4, 0.0, 1.0),
    "boxes": th.Blockwise(boxes, 4, 0.0, 1.0, select="map"),
    "queries": th.Blockwise(first_of_group, 3, 0.0, 1.0, groups=NUMBERS),
}


def account(url, sealed=False):
    rule = {"mechanism": th.Sealed(evaluations=4), "budget": 1}
    if not sealed:
        rule = {"mechanism": th.Ladder(step=0.0), "budget": 20, "grid": 2**20}
    return th.ReusableHoldout(url, name="val", size=SIZE, statistics=STATISTICS, **rule)


def passed(holdout, rows, rank=0, world=1, by_ids=False):
    """Sealed sums of some rows, in batches of four."""
    sums = {name: holdout.accumulator(name, rank=rank, world=world) for name in STATISTICS}
    for start in range(0, len(rows), 4):
        own = rows[start : start + 4]
        sums["grouped"].update(VALUES[own], *([[IDS[i] for i in own]] if by_ids else []))
        sums["texts"].update([TEXTS[i] for i in own], VALUES[own])
        sums["boxes"].update([BOXES[i] for i in own])
        sums["queries"].update(VALUES[own], NUMBERS[own])
    return sums


def answers(holdout, sums, query="w"):
    return {n: a.value for n, a in holdout.release_all(sums, query=query).items()}


def share(rank, world, shuffle=False):
    return list(DistributedSampler(range(SIZE), world, rank, shuffle=shuffle))


def shares(rank, world, url):
    holdout = account(url)
    return answers(holdout, passed(holdout, share(rank, world), rank, world))


def all_rows(rank, world, url):
    holdout = account(url)
    return answers(holdout, passed(holdout, list(range(SIZE)), rank, world))


def shuffled_ids(rank, world, url):
    holdout = account(url)
    sums = holdout.accumulator("grouped", rank=rank, world=world)
    for i in share(rank, world, shuffle=True):
        sums.update(VALUES[i : i + 1], [IDS[i]])
    return holdout.release("grouped", sums, query="w").value


def all_rows_in_other_orders(rank, world, url):
    holdout = account(url)
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(rank)).tolist()
    sums = holdout.accumulator("grouped", rank=rank, world=world)
    sums.update(VALUES[order], [IDS[i] for i in order])
    return holdout.release("grouped", sums, query="w").value


def other_copies(rank, world, url):
    holdout = account(url)
    sums = passed(holdout, list(range(SIZE)), rank, world)
    name = ("grouped", "texts", "boxes")[int(url[-1])]
    own = holdout.accumulator(name, rank=rank, world=world)
    columns = {"grouped": (VALUES * (1 - 0.1 * rank),),
               "texts": ([t + "!" * rank for t in TEXTS], VALUES),
               "boxes": ([row | {"label": rank} for row in BOXES],)}  # fmt: skip
    own.update(*columns[name])
    try:
        answers(holdout, sums | {name: own})
    except HoldoutError as error:
        return type(error).__name__, holdout.status().queries
    return "answered", 1


def foreign_id_on_one_rank(rank, world, url):
    holdout = account(url)
    sums = holdout.accumulator("grouped", rank=rank, world=world)
    own = share(rank, world)
    ids = [IDS[i] for i in own]
    sums.update(VALUES[own], ["nobody", *ids[1:]] if rank else ids)
    try:
        holdout.release("grouped", sums, query="w")
    except HoldoutError as error:
        return type(error).__name__, holdout.status().queries
    return "answered", 1


class Unsendable(dict):
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("secret 731")


def unsendable_on_one_rank(rank, world, url):
    holdout = account(url)
    sums = passed(holdout, share(rank, world), rank, world)
    if rank:
        sums["boxes"]._rows[0][0][0] = Unsendable()
    try:
        answers(holdout, sums)
    except HoldoutError as error:
        quoted = "731" in str(error)
        return "quoted" if quoted else type(error).__name__, holdout.status().queries
    return "answered", 1


def sealed(rank, world, url):
    holdout = account(url, sealed=True)
    with holdout.run() as run:
        run.evaluate(passed(holdout, share(rank, world), rank, world), query="w")
    if rank:
        return None
    return {value.statistic: value.value for value in holdout.close().values}


def joined(rank, port, results, jobs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=wait)
    try:
        results.put((rank, [scenario(rank, 2, url) for scenario, url in jobs]))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What both ranks have seen in every scenario, by its name: one start of the processes."""
    folder = tmp_path_factory.mktemp("ranks")
    scenarios = [shares, all_rows, shuffled_ids, all_rows_in_other_orders, other_copies]
    scenarios += [foreign_id_on_one_rank, unsendable_on_one_rank, sealed]
    numbered = [(s, 0) for s in scenarios] + [(other_copies, 1), (other_copies, 2)]
    names = [f"{scenario.__name__}{number}" for scenario, number in numbered]
    jobs = [(s, f"sqlite:///{folder}/{n}") for (s, _), n in zip(numbered, names, strict=True)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [
        context.Process(target=joined, args=(rank, port, results, jobs)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    by_rank = dict(results.get(timeout=180) for _ in processes)
    for process in processes:
        process.join(60)
        assert not process.is_alive()
    return {name: (by_rank[0][i], by_rank[1][i]) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def alone():
    holdout = account("memory://alone")
    return answers(holdout, passed(holdout, list(range(SIZE)), by_ids=True))


def test_shares_give_the_numbers_of_one_process(found, alone):
    assert found["shares0"] == (alone, alone)
    assert len(set(alone.values())) == 4


def test_ranks_that_all_have_all_rows_give_them_too(found, alone):
    assert found["all_rows0"] == (alone, alone)


def test_ids_go_with_a_shuffling_sampler(found, alone):
    assert found["shuffled_ids0"] == (alone["grouped"],) * 2
    assert found["all_rows_in_other_orders0"] == (alone["grouped"],) * 2


@pytest.mark.parametrize("number", [0, 1, 2], ids=["groups", "text", "dictionaries"])
def test_copies_that_differ_are_refused_on_both_ranks(found, number):
    assert found[f"other_copies{number}"] == (("PartialPassError", 0),) * 2


def test_an_id_that_one_rank_does_not_know_is_refused_on_both(found):
    assert found["foreign_id_on_one_rank0"] == (("PartialPassError", 0),) * 2


def test_rows_that_cannot_be_sent_leave_no_rank_waiting(found):
    assert found["unsendable_on_one_rank0"] == (("HoldoutError", 0), ("InvalidArgumentError", 0))


def test_a_sealed_account_closes_with_the_numbers_of_one_process(found, alone):
    closed, _ = found["sealed0"]
    assert closed == pytest.approx(alone, abs=1e-4)
