"""What an embedding must be is found out with made-up rows; what records do stays unsaid."""

from functools import partial

import pytest
import torch
from torch import nn
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction import EmbeddedRecords

from support.builders.nearest import clusters, make_predictor, make_records


def add_to(embed, x=None):
    records = EmbeddedRecords(embed, num_classes=3)
    default, labels = clusters(6)
    x = default if x is None else x
    records.add(x, labels[: len(x)])
    return records


class Counting(nn.Module):
    """Keeps state in a plain attribute."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Averaging(nn.Module):
    """Follows the rows it has seen, in a buffer, also in eval mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean += 0.1 * (x.mean(0) - self.mean)
        return x - self.mean


class Drifting(nn.Module):
    """Follows the rows it has seen so slowly that no rounded number shows it at first."""

    level = 0.0

    def forward(self, x):
        self.level += 1e-5 * (float(x.mean()) - self.level)
        return x - self.level


@pytest.mark.parametrize(
    ("embed", "words"),
    [
        (Counting(), "changed from call to call"),
        (Drifting(), "changed from call to call"),
        (Averaging(), "changed from call to call"),
        (lambda x: x + torch.rand_like(x), "changed from call to call"),
        (lambda x: nn.functional.dropout(x, 0.5), "changed from call to call"),
        (lambda x: x - x.mean(0), "depends on the other rows"),
        (lambda x: x[:, :, None], "one embedding for each row"),
        (lambda x: x.repeat(1, 251), "d from 1 to 1,000"),
        (lambda x: x[:1].repeat(2, 1), "one embedding for each row"),
        (lambda x: x > 0, "one embedding for each row"),
        (lambda x: None, "but got NoneType"),
        (lambda x: x.as_subclass(type("Watching", (torch.Tensor,), {})), "subclass"),
        (nn.Linear(5, 2), "made-up rows it raised RuntimeError: mat1 and mat2"),
    ],
)
def test_what_cannot_be_an_embedding_is_refused(embed, words):
    with pytest.raises(InvalidArgumentError, match=words):
        add_to(embed)


@pytest.mark.parametrize(
    "embed",
    [
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.ReLU()),
        nn.Flatten(),
        lambda x: x / x.norm(),  # a common factor does not change whole numbers
        lambda x: nn.functional.normalize(x),
        lambda x: (100 * x).to(torch.int64),
        lambda x: x.half(),
    ],
)
def test_ordinary_embeddings_are_taken(embed):
    records = add_to(embed)
    assert make_predictor(records=records)(clusters(5)[0]).shape == (5,)


def test_a_module_in_training_mode_is_asked_in_eval_mode():
    embed = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = embed[1].running_mean.clone()
    records = EmbeddedRecords(embed.train(), num_classes=3)
    records.train()
    records.add(*clusters(6))
    make_predictor(records=records)(clusters(5)[0])
    assert torch.equal(embed[1].running_mean, before)


def test_an_error_of_a_record_is_not_quoted():
    def embed(x):
        if bool((x > 100).any()):
            raise ValueError(f"cannot embed {x.tolist()}")
        return x

    x = clusters(6)[0]
    x[3, 1] = 777.0
    with pytest.raises(InvalidArgumentError, match="there was ValueError") as caught:
        add_to(embed, x)
    frames, trace = [], caught.value.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    ours = [frame for frame in frames if "torch_holdout" in frame.f_code.co_filename]
    assert "777" not in str(caught.value)
    assert "777" not in str([frame.f_locals for frame in ours])
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "change",
    [
        lambda embed: setattr(embed.weight, "data", torch.zeros(2, 4)),
        lambda embed: embed.weight.mul_(2.0),
        lambda embed: setattr(embed, "weight", nn.Parameter(torch.zeros(2, 4))),
        lambda embed: embed.double(),
    ],
)
def test_weights_that_changed_are_refused_and_nothing_is_charged(change):
    embed = nn.Linear(4, 2)
    records = make_records(embed=embed)
    predictor = make_predictor(records=records)
    predictor(clusters(2)[0])
    with torch.no_grad():
        change(embed)
    x = clusters(3)[0].to(embed.weight.dtype)
    with pytest.raises(HoldoutMismatchError, match="Nothing was charged"):
        predictor(x)
    with pytest.raises(HoldoutMismatchError, match="have changed since"):
        records.add(x, [0, 1, 2])
    assert predictor.status().queries == 2


def test_code_that_changed_is_refused_when_records_are_added():
    scale = [1.0]

    def embed(x):
        return x * torch.tensor([scale[0], 1.0, 1.0, 1.0])

    records = add_to(embed)
    scale[0] = 2.0
    with pytest.raises(HoldoutMismatchError, match="its code have changed"):
        records.add(*clusters(3))


def test_records_are_embedded_one_by_one_and_queries_together():
    sizes = []

    def embed(x):
        sizes.append(len(x))
        return x.clone()

    records = add_to(embed)
    assert sizes[-7:] == [1] * 6 + [3]  # and made-up rows, which must not have moved
    make_predictor(records=records)(clusters(9)[0])
    assert sizes[-1] == 9


def test_a_record_has_the_embedding_it_has_alone():
    """The last bits of a row in a batch depend on the others; here they must not."""
    embed = nn.Sequential(nn.Linear(4, 300), nn.Tanh(), nn.Linear(300, 40))
    x, y = clusters(40, seed=3)

    def stored(rows):
        records = EmbeddedRecords(embed, num_classes=3)
        records.add(x[rows], y[rows], ids=rows)
        return dict(zip(records._placed.ids, records._placed.found.codes, strict=True))

    whole, part = stored(list(range(40))), stored(list(range(7, 40)))
    assert all(torch.equal(whole[row], codes) for row, codes in part.items())


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.zeros(2, 5), "Expected `embed` to return one embedding"),
        (torch.zeros(2, 4, 4), "one embedding for each row"),
        ("text", "one embedding"),
        (torch.zeros(2, 4, device="meta"), "meta"),
    ],
)
def test_wrong_queries_are_refused_and_nothing_is_charged(inputs, words):
    predictor = make_predictor()
    with pytest.raises(InvalidArgumentError, match=words):
        predictor(inputs)
    with pytest.raises(InvalidArgumentError, match=words):
        predictor.require_answerable(inputs)
    assert predictor.status().queries == 0


def test_a_query_that_the_embedding_refuses_is_refused_by_its_type():
    predictor = make_predictor(records=make_records(embed=nn.Linear(4, 2)))
    with pytest.raises(InvalidArgumentError, match=r"it raised RuntimeError.*Nothing was charged"):
        predictor(torch.zeros(2, 7))


def test_an_embedding_that_watches_what_is_computed_from_it_is_refused():
    """A subclass would see the products with all records."""

    class Watching(torch.Tensor):
        pass

    watch = [False]

    def embed(x):
        return x.clone().as_subclass(Watching) if watch else x.clone()

    watch.clear()
    records = add_to(embed)
    watch.append(True)
    with pytest.raises(InvalidArgumentError, match="subclass"):
        make_predictor(records=records)(clusters(2)[0])


class Triggered(nn.Module):
    """Follows rows with large numbers only, which made-up rows have not."""

    level = 0.0

    def forward(self, x):
        if float(x.max()) > 1:
            self.level = float(x.max())
        return x - self.level


def test_what_only_private_rows_leave_in_an_embedding_shows_in_public_rows():
    records = EmbeddedRecords(Triggered(), num_classes=3)
    records.add(torch.full((2, 4), 0.5), [0, 1], ids=[0, 1])
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="changed from call to call"):
            records.add(torch.full((2, 4), 5.0), [0, 1], ids=[2, 3])
    records.remove([0, 1])
    assert (records.nearest(torch.ones(1, 4), 3) == -1).all()


def held_by_a_closure(net):
    return lambda x: net(x)


def held_by_a_default(net):
    return lambda x, net=net: net(x)


def held_by_a_partial(net):
    return partial(nn.functional.linear, weight=net.weight)


def held_by_a_method(net):
    return net.forward


def held_by_two(net):
    return partial(lambda inner, x: inner(x), lambda x: net(x))


def held_in_a_circle(net):
    def one(x, again=False):
        return other(x) if again else net(x)

    def other(x):
        return one(x)

    return other


HOLDING = [
    held_by_a_closure, held_by_a_default, held_by_a_partial, held_by_a_method, held_by_two,
    held_in_a_circle,
]  # fmt: skip


@pytest.mark.parametrize("hold", HOLDING)
def test_weights_that_a_function_holds_are_compared_before_each_query(hold):
    net = nn.Linear(4, 3, bias=False)
    predictor = make_predictor(records=make_records(embed=hold(net)))
    predictor(clusters(2)[0])
    with torch.no_grad():
        net.weight += 0.1  # as a step of training on the records would
    for _ in range(2):
        with pytest.raises(HoldoutMismatchError, match="Nothing was charged"):
            predictor(clusters(2)[0])
    assert predictor.status().queries == 2
