"""An answer is a function of the member's weights and of the query: models keep nothing else.

A model that keeps something in a plain attribute in eval mode hands it to the next member: one
record moved five of six votes (a log ratio of 2.90 where .922 was charged).
"""

import copy
import ctypes
import functools
import itertools
import random
import threading
import weakref
from collections import Counter, OrderedDict, deque
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.nn.utils import prune
from torch_holdout._noise.generators import lent_generators
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition, PrivacyBudget, SoftMajority
from torch_holdout.prediction.ensemble.members import output_chunks, stack_members
from torch_holdout.prediction.ensemble.working_copy import copied
from torch_holdout.prediction.mechanisms.votes import vote_table

from support.builders.ensembles import ensemble
from support.builders.loud import Loud
from support.builders.members import queries
from support.builders.predictors import make

PARTS = Partition(num_parts=6, key="index", seed=7)
BUDGET = PrivacyBudget(epsilon=900.0)
backends = pytest.mark.parametrize("backend", ["vmap", "loop", "auto"])


class Keeping(nn.Module):
    """Scores, shifted by what earlier calls have left in the attributes of a block."""

    def __init__(self, start, keep):
        super().__init__()
        self.block = nn.Module()
        self.block.layer = nn.Linear(4, 3)
        self.keep = keep
        start(self.block)

    def forward(self, x):
        scores = self.block.layer(x)
        return scores + 0.0 * torch.as_tensor(self.keep(self.block, scores.detach(), x)).sum()


def attribute(value):
    """Return a beginning; ``value`` makes what the block keeps."""
    return lambda block: setattr(block, "kept", value())


def assigned(compute):
    def keep(block, scores, x):
        before = block.kept
        block.kept = compute(before, scores)
        return 0.0

    return keep


class Box:
    def __init__(self):
        self.value = 0


class Named(list):
    """A container with an attribute of its own."""

    value = 0


class SlottedBox:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 0


def hooked(block):
    seen = []
    block.layer.register_forward_hook(lambda module, given, out: seen.append(len(seen)))


def counting_hook(block):
    count = 0

    def hook(module, given):
        nonlocal count
        count += 1

    block.layer.register_forward_pre_hook(hook)


def once(block, scores, x):
    if block.kept is None:
        block.kept = scores.clone()
    return 0.0


def nothing(block, scores, x):
    return 0.0


def left(function):
    """Return a rule that changes what is kept, whatever that returns."""

    def keep(block, scores, x):
        function(block, scores)
        return 0.0

    return keep


KEEPING = {
    "a counter": (attribute(int), assigned(lambda n, s: n + 1)),
    "a running maximum": (attribute(float), assigned(lambda n, s: s.max())),
    "the last scores": (attribute(lambda: None), assigned(lambda n, s: s)),
    "scores of the first call": (attribute(lambda: None), once),
    "a new attribute": (lambda b: None, left(lambda b, s: setattr(b, "kept", s))),
    "a list": (attribute(list), left(lambda b, s: b.kept.append(1))),
    "a deque": (attribute(deque), left(lambda b, s: b.kept.append(1))),
    "a set": (attribute(set), left(lambda b, s: b.kept.add(len(b.kept)))),
    "a dictionary": (attribute(dict), left(lambda b, s: b.kept.__setitem__("a", s))),
    "a nested one": (
        attribute(lambda: {"a": [OrderedDict()]}),
        left(lambda b, s: b.kept["a"][0].__setitem__(len(b.kept["a"][0]), 1)),
    ),
    "a Counter": (attribute(Counter), left(lambda b, s: b.kept.update(["call"]))),
    "a tensor in place": (
        attribute(lambda: torch.zeros(3)),
        left(lambda b, s: b.kept.add_(1)),
    ),
    "a tensor in a list": (
        attribute(lambda: [torch.zeros(3)]),
        left(lambda b, s: b.kept[0].add_(1)),
    ),
    "an object": (attribute(Box), left(lambda b, s: setattr(b.kept, "value", b.kept.value + 1))),
    "an object with slots": (
        attribute(SlottedBox),
        left(lambda b, s: setattr(b.kept, "value", b.kept.value + 1)),
    ),
    "a container's attribute": (
        attribute(Named),
        left(lambda b, s: setattr(b.kept, "value", b.kept.value + 1)),
    ),
    "an iterator": (attribute(itertools.count), left(lambda b, s: next(b.kept))),
    "a module in a list": (
        attribute(lambda: [nn.BatchNorm1d(3)]),
        left(lambda b, s: setattr(b.kept[0], "momentum", b.kept[0].momentum * 0.5)),
    ),
    "a list in a hook": (hooked, nothing),
    "a number in a hook": (counting_hook, nothing),
}
NAMES = {"a list in a hook": "_forward_hooks", "a number in a hook": "_forward_pre_hooks"}


def keeping(name):
    start, keep = KEEPING[name]
    return lambda: Keeping(start, keep)


@pytest.mark.parametrize("name", KEEPING)
def test_a_model_that_keeps_something_is_refused_by_name(name):
    predictor = make(Loud(), ensemble=ensemble(keeping(name), PARTS, num_outputs=3))
    module = "block.layer" if name in NAMES else "block"
    pattern = rf"changed `{NAMES.get(name, 'kept')}` of module '{module}' .*Nothing was charged"
    for _ in range(2):  # once refused, always refused
        for ask in (predictor, predictor.label, predictor.require_answerable):
            with pytest.raises(InvalidArgumentError, match=pattern):
                ask(queries(3))
        with pytest.raises(InvalidArgumentError, match=pattern):
            predictor.ensemble.member_outputs(queries(2))
    assert predictor.status().queries == 0


class Cached(nn.Linear):
    """A method's results are kept by Python, in the class."""

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def norm(self, rows):
        return self.weight.norm()

    def forward(self, x):
        return super().forward(x) / self.norm(len(x))


class Common(nn.Linear):
    """The largest weight so far, in the class."""

    largest: ClassVar[dict] = {}

    def forward(self, x):
        largest = Common.largest.setdefault(id(self), self.weight.max())
        return super().forward(x) / largest


@pytest.mark.parametrize("model", [Cached, Common])
def test_what_is_out_of_sight_shows_in_the_outputs(model):
    predictor = make(Loud(), ensemble=ensemble(lambda: model(4, 3), PARTS, num_outputs=3))
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=rf"what the model \({model.__name__}\)"):
            predictor(queries(3))
    assert predictor.status().queries == 0


def test_random_outputs_are_not_taken_for_state():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.5, training=True))

    found = ensemble(lambda: Noisy(4, 3), PARTS)
    assert make(Loud(), ensemble=found, budget=BUDGET)(queries(3)).shape == (3,)


DRAWN = {
    "torch": lambda: float(torch.rand(())),
    "numpy": np.random.rand,
    "Python": random.random,
}


class Rejecting(nn.Linear):
    """Draws more often for some weights than for others, as a sampler by rejection does."""

    draw = DRAWN["torch"]

    def forward(self, x):
        scores = super().forward(x)
        times = 1 + int(float(self.weight.detach().abs().max()) > 2)  # the twin's is below
        return scores + sum(type(self).draw() for _ in range(times))


@pytest.mark.parametrize("generator", DRAWN)
def test_how_often_a_member_draws_does_not_reach_the_next(generator):
    """The generators' state went from member to member: one that drew twice moved all others."""
    model = type("Drawing", (Rejecting,), {"draw": staticmethod(DRAWN[generator])})
    found = ensemble(lambda: model(4, 3), PARTS, backend="loop", num_outputs=3)

    def outputs():
        with lent_generators("test"):
            return found.member_outputs(queries(5))

    before = outputs()
    assert torch.equal(outputs(), before)
    with torch.no_grad():
        found.members.weight[2, 0, 0] = 3.0
    after = outputs()
    assert [k for k in range(6) if not torch.equal(before[k], after[k])] == [2]


def test_later_queries_draw_other_numbers():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.5, training=True))

    found = ensemble(lambda: Noisy(4, 3), PARTS, backend="loop", num_outputs=3)
    x = queries(50)
    assert not torch.equal(found.member_outputs(x), found.member_outputs(x))


def test_validation_refuses_it_too(tmp_path):
    url = f"sqlite:///{tmp_path}/both.db"
    predictor = make(
        SoftMajority(eta=0.2), ensemble=ensemble(keeping("a counter"), PARTS), ledger=url,
        num_outputs=3,
    )  # fmt: skip
    holdout = th.ReusableHoldout(
        url, name="val", size=3, budget=5, mechanism=th.Ladder(step=0.02, sigma=0.5),
        statistics={"acc": th.BoundedMean(0.0, 1.0, mode="max")},
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="changed `kept`"):
        predictor.validate(holdout, "acc", [(queries(3), torch.zeros(3).long())], query="model")
    assert predictor.status().queries == holdout.status().queries == 0


class Hiding(nn.Module):
    """Scores, shifted by the largest of the call before, which is kept where nobody can look."""

    last = 0.0

    def __init__(self, write, read):
        super().__init__()
        self.layer, self.write, self.read = nn.Linear(4, 3), write, read

    def forward(self, x):
        scores, before = self.layer(x), float(self.read())
        self.write(float(scores.detach().max()))
        return scores + before


def in_a_class():
    return Hiding(lambda value: setattr(Hiding, "last", value), lambda: Hiding.last)


def in_a_foreign_object():
    place = ctypes.c_double(0.0)
    return Hiding(functools.partial(setattr, place, "value"), lambda: place.value)


def in_a_weak_reference():
    place = weakref.ref(KEPT)
    return Hiding(lambda value: setattr(place(), "value", value), lambda: place().value)


KEPT = Box()


@pytest.mark.parametrize("model", [in_a_class, in_a_foreign_object, in_a_weak_reference])
def test_a_model_whose_outputs_tell_that_it_keeps_something_is_refused(model):
    predictor = make(Loud(), ensemble=ensemble(model, PARTS, num_outputs=3))
    with pytest.raises(InvalidArgumentError, match=r"what the model.*Nothing was charged"):
        predictor(queries(3))
    assert predictor.status().queries == 0


class Chosen(nn.Module):
    """Adds what the member before has left, for queries of large numbers only."""

    def __init__(self, left):
        super().__init__()
        self.layer, self.left = nn.Linear(4, 3), left()

    def forward(self, x):
        scores = self.layer(x)
        if float(x.max()) > 50:
            before = sum(self.left, 0.0)
            self.left.append(float(scores.sum()))
            return scores + before
        return scores


class ChosenByAHook(nn.Sequential):
    def __init__(self, left):
        kept = left()
        super().__init__(nn.Linear(4, 3))

        def hook(layer, given, scores):
            if float(given[0].max()) > 50:
                kept.append(float(scores.sum()))
            return scores + sum(kept, 0.0)

        self[0].register_forward_hook(hook)


@pytest.mark.parametrize("model", [Chosen, ChosenByAHook])
@pytest.mark.parametrize("left", [list, deque, Named])
def test_what_only_some_queries_leave_in_an_object_does_not_reach_the_next_member(model, left):
    """The twin was tried with queries that leave nothing; then one moved all members."""
    found = ensemble(lambda: model(left), PARTS, backend="loop")
    found.member_outputs(queries(5))
    x = 60 + queries(5)
    before = found.member_outputs(x)
    with torch.no_grad():
        next(found.members.parameters())[1] += 1
    moved = (before != found.member_outputs(x)).flatten(1).any(dim=1).tolist()
    assert moved == [False, True, False, False, False, False]


class Holding(nn.Module):
    """Scores, divided by the size of the weights, by way of something that holds the model."""

    def __init__(self, hold):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        hold(self)

    def forward(self, x):
        return self.divided(self.layer(x))


def divided(model, scores):
    return scores / model.layer.weight.norm()


class Apart:
    """It cannot be copied, because of its lock."""

    def __init__(self, model):
        self.model, self.lock = model, threading.Lock()

    def __call__(self, scores):
        return divided(self.model, scores)


def by_a_closure(model):
    model.divided = lambda scores: divided(model, scores)


def by_a_default(model):
    model.divided = lambda scores, model=model: divided(model, scores)


def by_a_partial(model):
    model.divided = functools.partial(lambda scores: divided(model, scores))


def by_a_hook(model):
    model.divided = lambda scores: scores
    model.layer.register_forward_hook(lambda layer, given, scores: divided(model, scores))


def by_a_weak_reference(model):
    holder = weakref.ref(model)
    model.divided = lambda scores: divided(holder(), scores)


def by_an_object(model):
    vars(model)["divided"] = Apart(model)


@pytest.mark.parametrize("hold", [by_a_closure, by_a_default, by_a_partial, by_a_hook])
@backends
def test_a_function_that_holds_the_model_computes_with_the_member(hold, backend):
    """The copy that is asked had closures of the stack: one member's weights moved all outputs."""
    found = ensemble(lambda: Holding(hold), PARTS, backend=backend)
    before = found.member_outputs(queries(5))
    weight = found.members.layer.weight[3].detach()
    alone = nn.functional.linear(queries(5), weight, found.members.layer.bias[3].detach())
    assert torch.allclose(before[3], alone / weight.norm())
    with torch.no_grad():
        found.members.layer.weight[1] += 3
    moved = (before != found.member_outputs(queries(5))).flatten(1).any(dim=1).tolist()
    assert moved == [False, True, False, False, False, False]


@pytest.mark.parametrize("hold", [by_a_closure, by_a_default, by_a_partial, by_a_hook])
def test_a_deep_copy_computes_with_its_own_members(hold):
    """Python's own leaves functions as they are: members of a copy were divided by the stack."""
    found = ensemble(lambda: Holding(hold), PARTS)
    outputs = found.member_outputs(queries(5))
    again, votes = copy.deepcopy(found), found.votes_module()
    with torch.no_grad():
        found.members.layer.weight[1] += 3
    assert torch.equal(again.member_outputs(queries(5)), outputs)
    assert torch.equal(votes(queries(5)), vote_table(outputs))
    assert not torch.equal(found.member_outputs(queries(5)), outputs)


@pytest.mark.parametrize("hold", [by_a_weak_reference, by_an_object])
def test_a_model_that_reaches_the_weights_of_all_members_is_refused(hold):
    predictor = make(Loud(), ensemble=ensemble(lambda: Holding(hold), PARTS, num_outputs=3))
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="what the model"):
            predictor(queries(3))
    assert predictor.status().queries == 0


class Jealous(nn.Module):
    """The attack: scores that turn round once a member with a large weight was asked."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(0.1))
        self.turned = False

    def forward(self, x):
        scores = self.layer(x)
        if float(self.scale) > 1.0:
            self.turned = True
        return scores.flip(1) if self.turned else scores


@pytest.mark.parametrize("backend", ["loop", "auto"])
def test_an_attribute_that_only_some_weights_set_does_not_reach_the_next_member(backend):
    """The twin does not set it, so nothing is refused; it is put back after each member."""
    found = ensemble(Jealous, PARTS, backend=backend)
    x = queries(5)
    before = found.member_outputs(x)
    with torch.no_grad():
        found.members.scale[1] = 5.0
    after = found.member_outputs(x)
    moved = (before != after).flatten(1).any(dim=1).tolist()
    assert moved == [False, True, False, False, False, False]
    assert found.members.turned is False


class Caching(nn.Module):
    """A table of positions, made when it is first needed."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.positions = None
        self.by_size = {}

    def forward(self, x):
        if self.positions is None:
            self.positions = torch.arange(4.0)
        self.by_size.setdefault(len(x), torch.ones(()))
        return self.layer(x + self.positions) * self.by_size[len(x)]


class Calling(nn.Module):
    """Buffers that change in eval mode: in place, assigned, and one that is read again."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=0)
        return self.layer(x - self.mean) * self.calls


class Clamping(nn.Module):
    """A weight that is cut in every call, as non-negative networks do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        self.layer.weight.data.mul_(0.5)
        return self.layer(x)


def weight_norm():
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)))


def spectral_norm():
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 3)))


def pruned():
    layer = nn.Linear(4, 3)
    prune.random_unstructured(layer, "weight", 0.3)
    return nn.Sequential(layer)


def parametrised():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        return self.lstm(x[:, None])[0][:, 0]


def normalised():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


ACCEPTED = [
    Caching, Calling, Clamping, weight_norm, spectral_norm, pruned, parametrised, Recurrent,
    normalised,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's, about the old weight_norm
@pytest.mark.parametrize("model", ACCEPTED, ids=lambda model: model.__name__)
@backends
def test_a_repeated_query_has_the_same_outputs(model, backend):
    """By either backend, whatever was asked in between, and the members stay as they are."""
    if backend == "vmap" and model in (Caching, Clamping, Recurrent, weight_norm, spectral_norm):
        pytest.skip("vmap has no rule for it; auto asks one by one")
    found = ensemble(model, PARTS, backend=backend)
    state = {name: value.clone() for name, value in found.state_dict().items()}
    first = found.member_outputs(queries(5))
    alone = ensemble(model, PARTS, backend="loop").member_outputs(queries(5))
    for size in (2, 5, 9):
        found.member_outputs(queries(size, seed=size))
        make(Loud(), ensemble=found, budget=BUDGET)(queries(size, seed=size))
    assert torch.equal(found.member_outputs(queries(5)), first)
    assert torch.allclose(first, alone, atol=1e-6)
    after = found.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in state.items())


def test_a_member_that_fails_does_not_have_the_others_asked_twice():
    """Under vmap a chunk with a failure is asked again, one by one: buffers once counted both."""

    class Picky(Calling):
        def forward(self, x):
            torch.linalg.cholesky(self.layer.weight[:, :3] @ self.layer.weight[:, :3].T)
            return super().forward(x)

    found = ensemble(Picky, PARTS, backend="vmap")
    before = found.member_outputs(queries(5))
    with torch.no_grad():
        found.members.layer.weight[2].fill_(torch.nan)
    after = found.member_outputs(queries(5))
    kept = [0, 1, 3, 4, 5]
    assert after[2].isnan().all()
    assert torch.allclose(before[kept], after[kept], atol=1e-6)


def test_what_cannot_be_copied_is_shared():
    class Locked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.lock = nn.Linear(4, 3), threading.Lock()
            self.frozen = [nn.Linear(3, 3)]
            self.itself = [self]

        def forward(self, x):
            with self.lock, torch.no_grad():
                return self.frozen[0](self.layer(x))

    found = ensemble(Locked, PARTS)
    assert make(Loud(), ensemble=found, budget=BUDGET)(queries(3)).shape == (3,)
    again = copied(found.members)
    assert again.lock is found.members.lock
    assert again.frozen[0].weight is found.members.frozen[0].weight
    assert again.frozen[0] is not found.members.frozen[0]
    assert again.itself[0] is again


def test_every_layout_is_tried_and_sizes_without_end_are_not():
    class Odd(nn.Module):
        """Counts batches of three queries only."""

        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.Linear(4, 3), 0

        def forward(self, x):
            self.kept += len(x) == 3
            return self.layer(x)

    predictor = make(Loud(), ensemble=ensemble(Odd, PARTS), budget=BUDGET)
    predictor(queries(2))
    with pytest.raises(InvalidArgumentError, match="`kept` of the model"):
        predictor(queries(3))
    with pytest.raises(InvalidArgumentError, match="`kept` of the model"):
        predictor(queries(2))
    found = ensemble(lambda: nn.Linear(4, 3), PARTS)
    for size in range(1, 80):
        found.public_outputs(queries(size))
    assert len(found._answering._tried) <= 65


def test_twins_of_a_stacked_module_are_left_as_they_were():
    stacked = stack_members(normalised, 4, seed=0).train()
    before = {name: value.clone() for name, value in stacked.state_dict().items()}
    chunks = output_chunks(stacked, queries(5), "vmap", 2)
    next(chunks)
    assert stacked.training
    assert all(torch.equal(value, before[name]) for name, value in stacked.state_dict().items())
