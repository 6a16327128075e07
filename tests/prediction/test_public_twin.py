"""Whether a query is answered depends on the query and on public weights, never on the records.

Each rule below is a model that fails in its own way where its weights pass a bound that the query
carries: an attacker who may choose queries would read a weight by bisection if that could be seen.
"""

import copy
import pickle
import warnings
from dataclasses import dataclass

import pytest
import torch
import torch_holdout as th
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.prediction import NoisyMean, Partition, PrivacyBudget, SoftMajority, distill

from support.builders.ensembles import ensemble
from support.builders.members import Members, queries
from support.builders.predictors import LABELS, make

PARTS = Partition(num_parts=6, key="index", seed=7)
ORDINARY, SECRET = 0.1, 5.0  # a weight with and without the record
PUBLIC = 0.2  # the twin's first weight


def raised(scores):
    raise RuntimeError("quotes 5.0")


def refused_by_us(scores):
    raise InvalidArgumentError("quotes 5.0")


def warned(scores):
    warnings.warn("quotes 5.0", stacklevel=1)
    return scores


FAILURES = {
    "raises": raised,
    "raises an error of ours": refused_by_us,
    "runs out of memory": lambda scores: torch.empty(2**62),
    "divides by zero": lambda scores: scores / (1 // 0),
    "not a number": lambda scores: scores * torch.nan,
    "infinite": lambda scores: scores * torch.inf,
    "fewer rows": lambda scores: scores[:1],
    "more rows": lambda scores: scores.repeat(2, 1),
    "another number of classes": lambda scores: scores[:, :2],
    "no dimension": lambda scores: scores.sum(),
    "one dimension more": lambda scores: scores[..., None],
    "double precision": lambda scores: scores.double(),
    "whole numbers": lambda scores: scores.long(),
    "complex": lambda scores: scores.to(torch.complex64),
    "booleans": lambda scores: scores > 0,
    "sparse": lambda scores: scores.to_sparse(),
    "no data": lambda scores: scores.to("meta"),
    "a tuple": lambda scores: (scores, scores),
    "None": lambda scores: None,
    "warns": warned,
}


class Bounded(nn.Module):
    """Scores; they come out wrong where the weight passes the bound in a query's last feature."""

    def __init__(self, failure):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(PUBLIC))
        self.failure = failure

    def forward(self, x):
        scores = self.layer(x) * self.scale
        return self.failure(scores) if bool((self.scale > x[:, 3]).any()) else scores


def predictor_of(failure, scale, mechanism=LABELS[0], *, backend="loop", **options):
    """Return a predictor whose third member has this weight; the others have an ordinary one."""
    found = ensemble(lambda: Bounded(failure), PARTS, backend=backend, num_outputs=3)
    with torch.no_grad():
        found.members.scale.fill_(ORDINARY)
        found.members.scale[2] = scale
    return make(mechanism, ensemble=found, budget=PrivacyBudget(epsilon=100.0), **options)


def asked(bound, count=3):
    x = queries(count)
    x[:, 3] = bound
    return x


def outcome(predictor, inputs):
    """Return what anyone can see: the error's text, or that there is an answer, and the charge."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = predictor(inputs)
        seen = ("answer", tuple(answer.shape), answer.dtype, len(caught))
    except HoldoutError as error:
        seen = ("error", str(error), error.__cause__, error.__context__)
    return (*seen, predictor.status().queries)


@pytest.mark.parametrize("backend", ["loop", "auto"])
@pytest.mark.parametrize("name", FAILURES)
def test_neighbours_cannot_be_told_apart_by_what_fails(name, backend):
    """Bounds below and above the twin's own weight, with and without the record."""
    failure = FAILURES[name]
    for bound in (0.0, 0.15, 1.0, 10.0):
        with_record, without = (
            outcome(predictor_of(failure, scale, backend=backend), asked(bound))
            for scale in (SECRET, ORDINARY)
        )
        assert with_record == without
        if bound > PUBLIC:  # the twin answers: so does the predictor, and it is paid
            assert with_record == ("answer", (3,), torch.int64, 0, 3)
        elif with_record[0] == "error":
            assert with_record[2:] == (None, None, 0)


MEANS = [
    NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5, simplex=True),
    NoisyMean(low=0.0, high=1.0, noise="gaussian", sigma=0.5, simplex=True),
]


@pytest.mark.parametrize("mechanism", [*LABELS[1:2], *MEANS[:1]], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("name", FAILURES)
def test_every_mechanism_answers_when_members_fail(name, mechanism):
    predictor = predictor_of(FAILURES[name], SECRET, mechanism)
    predictor(asked(1.0))
    assert predictor.status().queries == 3


def test_whole_number_outputs_have_no_nan_and_still_give_no_error():
    """A member that fails where outputs are whole numbers once raised, because NaN is none."""

    class Whole(Bounded):
        def forward(self, x):
            return (super().forward(x) * 100).long()

    found = ensemble(lambda: Whole(raised), PARTS, backend="loop")
    with torch.no_grad():
        found.members.scale.fill_(SECRET)
    predictor = make(SoftMajority(eta=5.0), ensemble=found, budget=PrivacyBudget(epsilon=100.0))
    assert predictor(asked(1.0)).tolist() == [0, 0, 0]


def test_a_bisection_over_bounds_reads_nothing():
    """The attack: twenty queries on which the twin fails told a weight to seven digits, free."""
    found = [
        [outcome(predictor_of(raised, scale), asked(bound))[:2] for bound in grid]
        for grid in [torch.linspace(0.0, 0.19, 20).tolist()]
        for scale in (0.01, 0.12, SECRET)
    ]
    assert found[0] == found[1] == found[2]
    assert {kind for kind, _ in found[0]} == {"error"}


def test_members_count_as_not_a_number_and_only_those_that_fail():
    found = predictor_of(raised, SECRET).ensemble
    outputs = found.member_outputs(asked(1.0))
    assert outputs[2].isnan().all()
    assert outputs[[0, 1, 3, 4, 5]].isfinite().all()


def test_the_members_of_a_chunk_fail_apart():
    """Under vmap one member fails for all of its chunk: they are asked again, one by one."""

    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            torch.linalg.cholesky(self.layer.weight[:, :3] @ self.layer.weight[:, :3].T)
            return self.layer(x)

    found = ensemble(Picky, PARTS, backend="vmap", chunk_size=4)
    with torch.no_grad():
        found.members.layer.weight[2].fill_(torch.nan)
    outputs = found.member_outputs(queries(5))
    assert outputs.isnan().flatten(1).any(dim=1).tolist() == [False, False, True, *[False] * 3]


@dataclass
class Wrapped:
    x: torch.Tensor

    def __isub__(self, other):
        self.x -= other
        return self


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("backend", ["loop", "auto"])
def test_a_member_that_writes_into_its_input_reaches_nobody(backend, wrapped):
    """`x -= self.mean` left raw values in the caller's tensor, and in later members' inputs."""

    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            x -= self.mean
            return self.layer(x.x if wrapped else x)

    found = ensemble(Writing, PARTS, backend=backend)
    x = queries(5)
    kept, given = x.clone(), Wrapped(x) if wrapped else x
    before = found.member_outputs(given)
    with torch.no_grad():
        found.members.mean[2] = 77.0
    make(ensemble=found)(given)
    after = found.member_outputs(given)
    assert torch.equal(x, kept)
    assert (before != after).flatten(1).any(dim=1).tolist() == [False, False, True, *[False] * 3]


def test_the_twin_has_the_types_of_the_members():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 5).half(), nn.Linear(5, 3).double()

        def forward(self, x):
            return self.last(self.first(x.half()).double())

    found = ensemble(Mixed, PARTS)
    assert make(ensemble=found)(queries(3)).shape == (3,)
    found.double()
    found.members.first.half()
    assert make(ensemble=found)(queries(3)).shape == (3,)


def test_a_twin_made_in_inference_mode_serves_outside_of_it():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    predictor = make(ensemble=ensemble(Counting, PARTS, backend="loop"))
    with torch.inference_mode():
        predictor(queries(2))
    predictor(queries(2))
    assert predictor.status().queries == 4


def test_copies_and_pickles_ask_the_twin_too():
    predictor = predictor_of(raised, SECRET)
    predictor(asked(1.0))
    for one in (copy.deepcopy(predictor), predictor):
        with pytest.raises(InvalidArgumentError, match="No member was asked"):
            one(asked(0.15))
    found = ensemble(importable_model, PARTS)
    found.public_outputs(queries(2))
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(again.member_outputs(queries(2)), found.member_outputs(queries(2)))
    assert b"Prober" not in pickle.dumps(found)


def importable_model():
    return nn.Linear(4, 3)


def test_a_cache_and_a_batch_of_both_kinds():
    """A batch with one query that the twin refuses is refused whole; what is cached stays free."""
    for scale in (SECRET, ORDINARY):
        predictor = predictor_of(raised, scale, cache=10)
        first = predictor(asked(1.0))
        mixed = torch.cat([asked(1.0), asked(0.15)])
        with pytest.raises(InvalidArgumentError, match="Nothing was charged"):
            predictor(mixed)
        assert torch.equal(predictor(asked(1.0)), first)
        assert predictor.status().queries == 3


@pytest.mark.filterwarnings("ignore::UserWarning")  # Lightning's, about workers
@pytest.mark.parametrize("scale", [SECRET, ORDINARY])
def test_distilling_tries_every_batch_before_the_first_is_paid(scale):
    predictor = predictor_of(raised, scale)
    inputs = torch.cat([asked(1.0, 8), asked(0.15, 4)])
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **options)
    with pytest.raises(InvalidArgumentError, match="No member was asked"):
        distill(
            predictor, DataLoader(TensorDataset(inputs), 4), nn.Linear(4, 3),
            trainer=trainer, optimizer=torch.optim.SGD, batch_size=4,
        )  # fmt: skip
    assert predictor.status().queries == 0


@pytest.mark.parametrize("name", FAILURES)
def test_validation_cannot_tell_neighbours_apart_either(name, tmp_path):
    seen = []
    for place, scale in enumerate((SECRET, ORDINARY)):
        url = f"sqlite:///{tmp_path}/{place}.db"
        predictor = predictor_of(FAILURES[name], scale, SoftMajority(eta=0.2), ledger=url)
        holdout = th.ReusableHoldout(
            url, name="val", size=6, budget=5, mechanism=th.Ladder(step=0.02, sigma=0.5),
            statistics={"acc": th.BoundedMean(0.0, 1.0, mode="max")},
        )  # fmt: skip
        for bound in (1.0, 0.15):
            x = torch.cat([asked(1.0), asked(bound)])
            loader = DataLoader(TensorDataset(x, torch.arange(6) % 3), batch_size=3)
            try:
                kind = predictor.validate(holdout, "acc", loader, query=f"{bound}").kind
            except HoldoutError as error:
                kind = str(error)
            kind = "answer" if kind in ("release", "guess", "best") else kind
            seen.append((scale, bound, kind, predictor.status().queries > 0))
    assert [row[1:] for row in seen[:2]] == [row[1:] for row in seen[2:]]
    assert seen[0][2:] == ("answer", True)


class Late(Members):
    """Members that fail one after the other, and a twin that does not."""

    def output_chunks(self, inputs):
        yield from list(super().output_chunks(inputs))[:1]
        raise RuntimeError("quotes 5.0")


def test_models_of_another_kind_that_fail_half_way_vote_for_class_0():
    predictor = make(SoftMajority(eta=3.0), ensemble=Late(), budget=PrivacyBudget(epsilon=900.0))
    assert predictor(queries(10)).tolist() == [0] * 10  # 12 of 20 members were not heard
    table = predictor.mechanism.total_table(Late(), queries(10))
    assert (table.sum(dim=1) == 20).all()


class Told(Bounded):
    """Tells which weights are asked, in order."""

    def __init__(self, order):
        super().__init__(raised)
        self.order = order

    def forward(self, x):
        self.order(float(self.scale))
        return super().forward(x)


@pytest.mark.parametrize("path", ["forward", "cache", "label", "validate", "raw", "chunks"])
@pytest.mark.parametrize("backend", ["loop", "auto"])
def test_the_twin_is_asked_before_any_member_on_every_path(path, backend, tmp_path):
    """At the first query, at every later one, and no member at all where the twin fails."""
    order, url = [], f"sqlite:///{tmp_path}/both.db"
    found = ensemble(lambda: Told(order.append), PARTS, backend=backend, num_outputs=3)
    with torch.no_grad():
        found.members.scale.fill_(SECRET)
    options = {"budget": PrivacyBudget(epsilon=100.0), "ledger": url}
    predictor = make(SoftMajority(eta=0.1), ensemble=found, **options)
    cached = make(SoftMajority(eta=0.1), ensemble=found, cache=9, **options)
    holdout = th.ReusableHoldout(
        url, name="val", size=3, budget=9, mechanism=th.Ladder(step=0.02, sigma=0.5),
        statistics={"acc": th.BoundedMean(0.0, 1.0, mode="max")},
    )  # fmt: skip
    ask = {
        "forward": predictor,
        "cache": cached,
        "label": predictor.label,
        "validate": lambda x: predictor.validate(
            holdout, "acc", [(x, torch.zeros(3).long())], query=f"{len(order)}"
        ),
        "raw": found.member_outputs,
        "chunks": lambda x: list(found.output_chunks(x)),
    }[path]
    for attempt in range(2):
        order.clear()
        ask(asked(10.0 + attempt))
        first = order.index(SECRET)
        assert first > 0
        assert all(weight == pytest.approx(PUBLIC) for weight in order[:first])
        assert order.count(SECRET) >= PARTS.num_parts
        order.clear()
        with pytest.raises((HoldoutError, RuntimeError)):
            ask(asked(0.15 - attempt))
        assert SECRET not in order
        assert order
