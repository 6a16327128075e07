"""Two real gloo ranks ask in one line: shares or all rows, plain, by Fabric and by accelerate."""

import copy
from dataclasses import astuple

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import Ledger

from support.machines.ranks import on_two_ranks

pytestmark = pytest.mark.integration
SIZE = 21


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def account(url, **changes):
    arguments = {"mechanism": th.Ladder(step=0.001), "grid": 21000, "budget": 5} | changes
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"acc": th.ZeroOne()}, **arguments
    )


def hits(count):
    return np.arange(SIZE) < count


def told(action):
    try:
        return astuple(action())[:3]
    except HoldoutError as error:
        return type(error).__name__, str(error).split(",")[0].split(";")[0]


def plain(rank, url):
    holdout = account(url)
    shifted = np.roll(hits(14), rank)
    return [
        told(lambda: holdout.ask("acc", hits(12)[rank::2], query="shares")),
        told(lambda: holdout.ask("acc", hits(14), query="all rows")),
        told(lambda: holdout.ask("acc", shifted[rank::2][: SIZE // 2], query="a row too few")),
        told(lambda: holdout.ask("acc", "text" if rank else hits(1), query="one rank")),
        told(lambda: holdout.ask("acc", hits(1), query=nn.Dropout() if rank else "one rank")),
    ]


def test_shares_and_whole_copies_are_one_answer_on_every_rank(url):
    first, second = on_two_ranks(plain, url)
    assert first[:3] == second[:3]
    assert [answer[:2] for answer in first[:2]] == [(12 / 21, "release"), (14 / 21, "release")]
    assert first[2][0] == "PartialPassError"
    elsewhere = ("HoldoutError", "Another rank could not ask")
    assert [first[3], first[4]] == [elsewhere] * 2
    assert [second[3][0], second[4][0]] == ["InvalidArgumentError", "WeightsChangedError"]
    assert account(url).status().queries == 2


def sealed(rank, url):
    holdout = account(url, mechanism=th.Sealed(evaluations=10), budget=1, grid=None)
    with holdout.run(stop=th.Patience("acc", patience=2)) as run:
        stops = []
        for epoch, count in enumerate((5, 9, 8, 9)):
            values = hits(count)[rank::2] if epoch % 2 else hits(count)  # shares, or all rows
            stops.append(run.evaluate({"acc": values}, query=f"epoch {epoch}").stop)
    return stops, run.outcome.best_evaluation


def test_a_run_takes_plain_values_of_ranks(url):
    assert on_two_ranks(sealed, url) == [([False, False, False, True], 2)] * 2
    holdout = account(url, mechanism=th.Sealed(evaluations=10), budget=1, grid=None)
    values = [each.value for each in holdout.close().curve("acc")]
    assert values == pytest.approx([count / 21 for count in (5, 9, 8, 9)], abs=1e-12)


def dataset():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(SIZE, 3, generator=generator)
    return TensorDataset(features, (features[:, 0] > 0).long())


def network():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net.eval()


@torch.no_grad()
def correct(model, loader):
    return torch.cat([model(x).argmax(1) == y for x, y in loader])


def ways(net):
    """The same weights, wrapped in every other way."""
    return {
        "plain": net,
        "copy": copy.deepcopy(net),
        "DDP": DistributedDataParallel(copy.deepcopy(net)).eval(),
        "compiled": torch.compile(copy.deepcopy(net)),
        "compiled DDP": torch.compile(DistributedDataParallel(copy.deepcopy(net)).eval()),
    }


def by_fabric(rank, url):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    net, holdout = network(), account(url)
    model = fabric.setup(copy.deepcopy(net)).eval()
    loader = fabric.setup_dataloaders(DataLoader(dataset(), batch_size=4))
    values = correct(model, loader)
    answers = {"Fabric": astuple(holdout.ask("acc", values, query=model))[:2]}
    for name, same in {**ways(net), "compiled Fabric": torch.compile(model)}.items():
        answers[name] = astuple(holdout.ask("acc", values, query=same))[:2]
    return answers, len(values)


def by_accelerate(rank, url):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net, holdout = network(), account(url)
    model, loader = accelerator.prepare(copy.deepcopy(net), DataLoader(dataset(), batch_size=4))
    # What it deals without gather_for_metrics: whole batches, and some rows twice.
    dealt = correct(model.eval(), loader)
    assert told(lambda: holdout.ask("acc", dealt, query=model))[0] == "PartialPassError"
    rows = []
    for x, y in loader:
        with torch.no_grad():
            rows.append(accelerator.gather_for_metrics(model(x).argmax(1) == y))
    values = torch.cat(rows)
    answers = {"accelerate": astuple(holdout.ask("acc", values, query=model))[:2]}
    for name, same in ways(net).items():
        answers[name] = astuple(holdout.ask("acc", values, query=same))[:2]
    return answers, len(values)


@pytest.mark.parametrize(("way", "rows"), [(by_fabric, 11), (by_accelerate, SIZE)])
def test_a_framework_asks_the_question_of_a_plain_loop(way, rows, url):
    pytest.importorskip("lightning.fabric" if way is by_fabric else "accelerate")
    (first, count), (second, _) = on_two_ranks(way, url)
    assert first == second
    assert count == rows  # a share with the sampler's padding; or every row on every rank
    expected = float(correct(network(), DataLoader(dataset(), batch_size=SIZE)).double().mean())
    kinds = {name: kind for name, (_, kind) in first.items()}
    wrapped = next(iter(first))
    assert kinds.pop(wrapped) == "release"
    assert set(kinds.values()) == {"repeat"}
    assert [value for value, _ in first.values()] == pytest.approx([expected] * len(first))
    again = account(url).ask("acc", hits(1), query=network())  # in this process, without ranks
    assert (again.kind, again.value) == ("repeat", first[wrapped][0])
    assert Ledger(url).releases(account(url)._attached()) == 1
