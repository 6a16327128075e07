"""Marked tensors: every read, write and keep is named, nothing else is, and values stay hidden."""

import collections
import copy
import io
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_holdout.training.first_look.marking import HIDDEN, Look, Marked

LABELS = torch.tensor([0, 1, 1, 0])
INPUTS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
GLOBAL = []


class Helper:
    __slots__ = ("values",)

    def __init__(self):
        self.values = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.losses = []
        self.by_name = collections.defaultdict(list)
        self.recent = collections.deque(maxlen=3)
        self.helper = Helper()
        self.best = None
        self.numbers = np.zeros(4)
        self.register_buffer("total", torch.zeros(8))


def looked(code):
    """What a look finds when ``code(net, x, y, loss)`` runs; and the net."""
    net, look = Net(), Look()
    GLOBAL.clear()

    def step(x, y):
        loss = functional.cross_entropy(net.layer(x), y, reduction="none")
        code(net, x, y, loss)
        return loss

    with torch.inference_mode():
        assert isinstance(step(look.mark(INPUTS.clone()), look.mark(LABELS.clone())), Marked)
        return look.end(), net


def in_a_closure(net, x, y, loss):
    net.later = lambda: loss


def through_scratch(net, x, y, loss):
    scratch = torch.zeros(4)
    scratch[:] = loss
    net.best = scratch.mean()


def by_the_way(net, x, y, loss):
    net.best = loss if loss.mean() < 5 else None


KEPT = {
    "list": (lambda n, x, y, loss: n.losses.append(loss), "Net.losses[0] keeps"),
    "detached": (lambda n, x, y, loss: n.losses.append(loss.detach().cpu()), "Net.losses[0] keeps"),
    "dict": (lambda n, x, y, loss: n.by_name["a"].append(loss), "Net.by_name['a'][0] keeps"),
    "deque": (lambda n, x, y, loss: n.recent.append(loss.mean()), "Net.recent[0] keeps"),
    "slots": (lambda n, x, y, loss: n.helper.values.append(loss), "Helper.values[0] keeps"),
    "global": (lambda n, x, y, loss: GLOBAL.append(loss), "test_marking.GLOBAL[0] keeps"),
    "attribute": (lambda n, x, y, loss: setattr(n, "best", loss.mean()), "Net.best keeps"),
    "inputs": (lambda n, x, y, loss: setattr(n, "best", x), "Net.best keeps"),
    "labels": (lambda n, x, y, loss: setattr(n, "best", y.tolist()), "Net.best keeps"),
    "array": (lambda n, x, y, loss: setattr(n, "best", y.numpy()), "Net.best keeps"),
    "copy": (lambda n, x, y, loss: setattr(n, "best", copy.deepcopy(loss)), "Net.best keeps"),
    "closure": (in_a_closure, "in_a_closure.<locals>.<lambda>"),
    "scratch": (through_scratch, "Net.best keeps"),
    "submodule": (lambda n, x, y, loss: setattr(n.layer, "seen", loss), "Linear.seen keeps"),
}
READ = {
    "item": (lambda n, x, y, loss: loss.mean().item(), "item() reads"),
    "float": (lambda n, x, y, loss: float(loss[0]), "float() reads"),
    "int": (lambda n, x, y, loss: int(loss[0] > 1), "int() reads"),
    "count": (lambda n, x, y, loss: (n.layer(x).argmax(1) == y).sum().item(), "item() reads"),
    "tolist": (lambda n, x, y, loss: loss.tolist(), "tolist() reads"),
    "numpy": (lambda n, x, y, loss: loss.numpy(), "numpy() reads"),
    "asarray": (lambda n, x, y, loss: np.asarray(loss), "array() reads"),
    "stored": (lambda n, x, y, loss: n.numbers.__setitem__(0, loss[0]), "float() reads"),
    "compared": (by_the_way, "bool() reads"),
    "largest": (lambda n, x, y, loss: max(0.0, loss.mean()), "bool() reads"),
    "equal": (lambda n, x, y, loss: torch.equal(loss, loss), "equal() reads"),
    "inputs": (lambda n, x, y, loss: x.mean().item(), "item() reads"),
    "pickle": (lambda n, x, y, loss: pickle.dumps(loss), "reduce_ex() reads"),
    "save": (lambda n, x, y, loss: torch.save(loss, io.BytesIO()), "reduce_ex() reads"),
    "format": (lambda n, x, y, loss: f"{loss.mean():.3f}", "format() shows"),
    "text": (lambda n, x, y, loss: str(loss), "str() shows"),
    "repr": (lambda n, x, y, loss: repr({"loss": loss}), "repr() shows"),
}
WRITTEN = {
    "item": (lambda n, x, y, loss: n.total.__setitem__(1, loss.mean()), "Net.total is written to"),
    "add": (lambda n, x, y, loss: n.total.add_(loss.mean()), "Net.total is written to"),
    "out": (lambda n, x, y, loss: torch.add(n.total, 1, out=n.total), ""),
    "out loss": (
        lambda n, x, y, loss: torch.add(n.total, loss.mean(), out=n.total),
        "Net.total is written to",
    ),
    "part": (lambda n, x, y, loss: n.total[2:6].copy_(loss), "a part of a tensor"),
    "where": (lambda n, x, y, loss: n.total.index_add_(0, y, y.float()), "Net.total is written to"),
}


@pytest.mark.parametrize(("code", "expected"), [*KEPT.values(), *READ.values()], ids=[*KEPT, *READ])
def test_what_is_kept_or_read_is_named(code, expected):
    findings, _ = looked(code)
    assert any(expected in finding.what for finding in findings), findings
    assert all(finding.place.file == __file__ for finding in findings)


@pytest.mark.parametrize(("code", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_is_named_and_undone(code, expected):
    findings, net = looked(code)
    assert [expected in finding.what for finding in findings] == ([True] if expected else [])
    if expected:
        assert torch.equal(net.total, torch.zeros(8))
    assert type(net.total) is torch.Tensor


ORDINARY = {
    "cached mask": lambda n, x, y, loss: setattr(n, "best", torch.triu(x.new_ones(4, 4))),
    "cached like": lambda n, x, y, loss: setattr(n, "best", torch.zeros_like(x)),
    "cached on its device": lambda n, x, y, loss: setattr(n, "best", torch.arange(3).to(x)),
    "counter": lambda n, x, y, loss: setattr(n, "best", len(x)),
    "one hot": lambda n, x, y, loss: torch.zeros(4, 2).scatter_(1, y[:, None], 1.0),
    "lengths": lambda n, x, y, loss: [int(y.max()), y.tolist(), bool((y >= 0).all())],
    "torch's checks": lambda n, x, y, loss: torch.distributions.Categorical(logits=x).log_prob(y),
    "several results": lambda n, x, y, loss: x.max(1).values + x.topk(1).values[:, 0],
    "splits": lambda n, x, y, loss: torch.cat([part * 2 for part in x.split(2)]),
    "gradients": lambda n, x, y, loss: loss.requires_grad,
}


@pytest.mark.parametrize("code", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_code_is_left_alone(code):
    assert looked(code)[0] == []


def test_a_look_that_forgets_reads_finds_nothing(monkeypatch):
    """The broken twin of the reads above."""
    monkeypatch.setattr(Look, "record", lambda *_: None)
    assert looked(READ["item"][0])[0] == []


def test_no_value_is_read_or_shown():
    seen = []

    def code(net, x, y, loss):
        seen.extend([loss.mean().item(), loss.tolist(), loss.numpy().sum(), float(loss[0])])
        seen.append(pickle.loads(pickle.dumps(loss)).sum().item())
        assert f"{loss:.3f}" == str(loss) == repr(loss) == HIDDEN

    looked(code)
    assert seen == [0.0, [0.0] * 4, 0.0, 0.0, 0.0]


def test_marks_end_with_their_look_and_what_is_kept_is_empty():
    look = Look()
    weights = torch.ones(1)
    marked = look.mark(torch.tensor([0.25]))
    shared, _ = torch.broadcast_tensors(weights, marked)
    assert look.end()
    assert marked.item() == 0.0
    assert type(marked * 2) is not Marked
    assert shared.item() == weights.item() == 1.0  # not its own memory


def test_nothing_outlives_a_look():
    look = Look()
    marked = look.mark(torch.ones(2))
    reference = weakref.ref(marked)
    del marked
    assert look.end() == []
    assert reference() is None
