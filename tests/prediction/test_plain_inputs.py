"""What records, wraps or watches a computation gets no answer, and nothing is charged for it.

An exported predictor gave 4,998 answers for three charges, its noise a constant of the graph;
``torch.vmap`` gave 5,000 answers with one draw of noise for one charge.
"""

import collections
import logging
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch_holdout as th
from lightning.pytorch import Trainer
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.prediction import NeighbourVotes, Partition, PrivacyBudget, SoftMajority
from torch_holdout.prediction.validation import expected_accuracy

from support.builders.ensembles import ensemble
from support.builders.loud import Loud
from support.builders.members import Members, queries
from support.builders.nearest import make_predictor
from support.builders.predictors import make

PARTS = Partition(num_parts=6, key="index", seed=7)
BUDGET = PrivacyBudget(epsilon=900.0)
X = queries(5)
SURE = NeighbourVotes(rate=1.0, k=15, sigma=0.5)


def linear():
    return nn.Linear(4, 3)


def predictor_of(kind="ensemble", **options):
    if kind == "records":
        return make_predictor(SURE, budget=PrivacyBudget(epsilon=900.0, delta=1e-5), **options)
    found = Members() if kind == "members" else ensemble(linear, PARTS, num_outputs=3)
    return make(options.pop("mechanism", Loud()), ensemble=found, budget=BUDGET, **options)


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.seen.append(result)
        return result


class WatchingFunctions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


def within(context, ask):
    with context:
        return ask(X)


RECORDERS = {
    "export": lambda ask: torch.export.export(_Module(ask), (X,)),
    "make_fx": lambda ask: make_fx(ask)(X),
    "make_fx of fake tensors": lambda ask: make_fx(ask, tracing_mode="fake")(X),
    "make_fx of symbols": lambda ask: make_fx(ask, tracing_mode="symbolic")(X),
    "vmap": lambda ask: torch.vmap(ask)(X[:, None]),
    "vmap of something else": lambda ask: torch.vmap(lambda other: ask(X) + other)(torch.ones(3)),
    "grad": lambda ask: torch.func.grad(lambda x: ask(x).sum() + x.sum())(X),
    "jvp": lambda ask: torch.func.jvp(lambda x: x + ask(x).sum(), (X,), (X,)),
    "functionalize": lambda ask: torch.func.functionalize(ask)(X),
    "jit.trace": lambda ask: torch.jit.trace(ask, (X,), check_trace=False),
    "fx": lambda ask: torch.fx.symbolic_trace(_Module(ask)),
    "fake tensors": lambda ask: within(FakeTensorMode(allow_non_fake_inputs=True), ask),
    "a fake tensor": lambda ask: ask(FakeTensorMode().from_tensor(X)),
    "a dispatch mode": lambda ask: within(Watching(), ask),
    "a function mode": lambda ask: within(WatchingFunctions(), ask),
    "a base function mode": lambda ask: within(BaseTorchFunctionMode(), ask),
    "meta by default": lambda ask: within(torch.device("meta"), ask),
    "meta": lambda ask: ask(X.to("meta")),
    "a subclass": lambda ask: ask(X.as_subclass(Subclass)),
    "sparse": lambda ask: ask(X.to_sparse()),
    "compressed": lambda ask: ask(X.to_sparse_csr()),
    "nested": lambda ask: ask(torch.nested.nested_tensor([X])),
    "jagged": lambda ask: ask(torch.nested.nested_tensor([X], layout=torch.jagged)),
    "quantised": lambda ask: ask(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)),
    "mkldnn": lambda ask: ask(X.to_mkldnn()),
}


def hooked(register, ask):
    """A hook of all modules is called with what each member's layers return."""
    handle = register(lambda *seen: None)
    try:
        return ask(X)
    finally:
        handle.remove()


RECORDERS |= {
    "a hook of all modules": partial(hooked, register_module_forward_hook),
    "a hook before all modules": partial(hooked, register_module_forward_pre_hook),
}


class _Module(nn.Module):
    def __init__(self, ask):
        super().__init__()
        self.ask = ask

    def forward(self, x):
        return self.ask(x)


def refused(recorder, ask):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about prototypes and deprecations
        with pytest.raises(InvalidArgumentError, match="Nothing was charged"):
            RECORDERS[recorder](ask)


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("kind", ["ensemble", "members", "records"])
def test_no_answer_is_recorded(recorder, kind):
    predictor = predictor_of(kind)
    predictor(X)
    for ask in (
        lambda x: predictor.forward(x),
        lambda x: predictor.predict_step((x, x)),
        lambda x: predictor.label(x),
        lambda x: torch.zeros(len(X)) if predictor.require_answerable(x) is None else None,
    ):
        refused(recorder, ask)
    assert predictor.status().queries == len(X)


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_cached_answer_is_not_recorded_either(recorder):
    predictor = predictor_of(cache=10)
    predictor(X)
    refused(recorder, lambda x: predictor.forward(x))
    assert predictor.status().queries == len(X)


@pytest.mark.parametrize("recorder", RECORDERS)
def test_raw_outputs_are_not_recorded(recorder):
    """Members that fail give NaN silently: under a trace all of them would."""
    found = ensemble(linear, PARTS)
    refused(recorder, lambda x: found.member_outputs(x))


@pytest.mark.parametrize("recorder", RECORDERS)
def test_no_validation_is_recorded(recorder, tmp_path):
    url = f"sqlite:///{tmp_path}/both.db"
    predictor = predictor_of(mechanism=SoftMajority(eta=0.2), ledger=url)
    holdout = th.ReusableHoldout(
        url, name="val", size=len(X), budget=5, mechanism=th.Ladder(step=0.02, sigma=0.5),
        statistics={"acc": th.BoundedMean(0.0, 1.0, mode="max")},
    )  # fmt: skip

    def ask(x):
        batch = (x, torch.zeros(len(X), dtype=torch.int64))
        return torch.tensor(predictor.validate(holdout, "acc", [batch], query="model").value)

    refused(recorder, ask)
    assert predictor.status().queries == holdout.status().queries == 0


def test_labels_that_watch_see_no_chances(tmp_path):
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(args)
            return super().__torch_function__(function, types, args, kwargs or {})

    labels = torch.zeros(5, dtype=torch.int64).as_subclass(Watched)
    seen.clear()
    with pytest.raises(InvalidArgumentError, match=r"subclass of torch\.Tensor"):
        expected_accuracy(ensemble(linear, PARTS), SoftMajority(eta=0.2), X, labels)
    tensors = [leaf for args in seen for leaf in args if type(leaf) is torch.Tensor]
    assert all(leaf.dtype != torch.float64 for leaf in tensors)


@dataclass
class Batch:
    x: Any


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


CONTAINERS = {
    "list": lambda x: [X, x],
    "tuple": lambda x: (X, (x,)),
    "dict": lambda x: {"a": X, "b": {"c": x}},
    "user dict": lambda x: collections.UserDict({"a": x}),
    "deque": lambda x: collections.deque([x]),
    "dataclass": lambda x: Batch(x),
    "slots": lambda x: Slotted([x]),
    "packed": lambda x: torch.nn.utils.rnn.PackedSequence(x, torch.ones(5, dtype=torch.int64)),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_tensors_are_found_in_containers(container):
    predictor = predictor_of("members")
    for x in (X.as_subclass(Subclass), X.to("meta")):
        with pytest.raises(InvalidArgumentError, match="Expected ordinary tensors"):
            predictor(CONTAINERS[container](x))
    assert predictor.status().queries == 0


class Hidden:
    """A query whose tensor is found by calling only."""

    def __init__(self, x):
        self.x = lambda: x


def test_a_tensor_that_watches_from_inside_a_closure_is_refused():
    """It shows in the twin's outputs, before any member is asked."""

    class Opening(nn.Linear):
        def forward(self, query):
            return super().forward(query.x())

    found = ensemble(lambda: Opening(4, 3), PARTS, num_outputs=3)
    predictor = make(Loud(), ensemble=found, budget=BUDGET)
    assert len(predictor(Hidden(X))) == len(X)
    for ask in (predictor, predictor.label, predictor.require_answerable):
        with pytest.raises(InvalidArgumentError, match=r"a subclass of torch\.Tensor"):
            ask(Hidden(X.as_subclass(Subclass)))
    assert predictor.status().queries == len(X)


def test_containers_that_hold_themselves_end():
    batch = {"x": X}
    batch["again"] = batch
    with pytest.raises(HoldoutError):
        predictor_of("members")(batch)


ALLOWED = {
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a device": lambda: torch.device("cpu"),
    "forward derivatives": forward_ad.dual_level,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_ordinary_contexts_are_left_alone(name):
    predictor = predictor_of()
    right = predictor(X)
    with ALLOWED[name]():
        assert torch.equal(predictor(X), right)
    assert predictor.status().queries == 2 * len(X)


def test_a_default_device_is_left_alone():
    predictor = predictor_of()
    torch.set_default_device("cpu")
    try:
        assert predictor(X).shape == (5,)
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("x", [nn.Parameter(X), X.clone().requires_grad_(), X[::2], X.T[:4].T])
def test_ordinary_tensors_are_answered(x):
    assert predictor_of()(x).shape == (len(x),)


@pytest.mark.filterwarnings("ignore")  # Lightning's, about workers and others
def test_trainer_predict_goes_on_as_before():
    predictor = predictor_of()
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", enable_checkpointing=False, **options)
    answers = trainer.predict(predictor, DataLoader(TensorDataset(X), batch_size=2))
    assert torch.equal(torch.cat(answers), predictor(X))


COMPILED = {
    "the predictor": lambda predictor: torch.compile(predictor, backend="eager"),
    "a function": lambda predictor: torch.compile(lambda x: predictor(x + 0) + 0, backend="eager"),
    "in place": lambda predictor: (predictor.compile(backend="eager"), predictor)[1],
    "labels": lambda predictor: torch.compile(predictor.label, backend="eager"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_asks_outside_of_its_graph(name, caplog):
    """Right votes and charges at every call, and no word about noise in warnings or logs."""
    torch._dynamo.reset()
    predictor = predictor_of()
    right = predictor(X)
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.DEBUG):
        warnings.simplefilter("always")
        compiled = COMPILED[name](predictor)
        for size in (5, 5, 3, 2, 5):
            assert torch.equal(compiled(X[:size]), right[:size])
    assert predictor.status().queries == 25
    said = [str(warning.message) for warning in caught] + [r.getMessage() for r in caplog.records]
    assert not [text for text in said if "frombuffer" in text or "bytearray" in text]


def test_compiled_code_asks_records_outside_of_its_graph():
    """Queries at the corners of the clusters: all 15 votes agree, and noise of .5 changes none."""
    torch._dynamo.reset()
    predictor = predictor_of("records")
    compiled = torch.compile(lambda x: predictor(x + 0) + 0, backend="eager")
    x = 3 * torch.eye(3, 4)
    for size in (3, 3, 2, 1):
        assert compiled(x[:size]).tolist() == [0, 1, 2][:size]
    assert predictor.status().queries == 9


def test_compiled_noise_is_fresh():
    torch._dynamo.reset()
    predictor = predictor_of(mechanism=SoftMajority(eta=0.01))
    compiled = torch.compile(predictor, backend="eager")
    x = queries(1).expand(64, -1)
    assert not torch.equal(compiled(x), compiled(x))  # equal with probability 3^-64


def test_a_whole_graph_is_refused():
    torch._dynamo.reset()
    predictor = predictor_of()
    with pytest.raises(Exception, match="disable"):
        torch.compile(predictor, backend="eager", fullgraph=True)(X)
    with pytest.raises(Exception, match="disable"):
        torch.export.export(predictor, (X,), strict=True)
    assert predictor.status().queries == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_are_refused():
    predictor = predictor_of()
    with pytest.raises(InvalidArgumentError, match=r"torch.jit.script.*Nothing was charged"):
        torch.jit.script(predictor)


def test_the_capture_of_a_cuda_graph_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    predictor = predictor_of("members")
    with pytest.raises(InvalidArgumentError, match="CUDA graph"):
        predictor(X)
    assert predictor.status().queries == 0


def test_the_votes_module_stays_exportable():
    found = ensemble(linear, PARTS)
    program = torch.export.export(found.votes_module(), (X,)).module()
    assert torch.equal(program(X), found.votes_module()(X))
    assert "no noise" in type(found).votes_module.__doc__
