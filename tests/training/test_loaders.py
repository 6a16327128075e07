"""What a loader tells before it is read: each example once, none left out, one value for each."""

import pytest
import torch
import torch_holdout as th
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.training.loaders import HoldoutLoader

from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    SIZE,
    data,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    per_example,
    quietly,
    trainer,
)
from support.builders.holdouts import make_holdout

DATA = data()


class Given(Sampler):
    """A sampler of one's own: draws what it is given, and may hold what cannot be copied."""

    def __init__(self, indices, baggage=None):
        self.indices = indices
        self.baggage = baggage
        self.drawn = 0

    def __iter__(self):
        self.drawn += 1
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class Shuffled(Given):
    """Draws from the global generator."""

    def __iter__(self):
        return iter(torch.randperm(len(self.indices)).tolist())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


class SizedStream(Stream):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def pairs(items):
    """Collation that makes two examples of each item."""
    return torch.utils.data.default_collate([item for item in items for _ in range(2)])


def checked(given, size=SIZE):
    return HoldoutLoader(given, make_holdout(size=size))


REPEATING = {
    "random": lambda: loader(sampler=RandomSampler(DATA, replacement=True)),
    "random twice as long": lambda: loader(sampler=RandomSampler(DATA, num_samples=2 * SIZE)),
    "weighted": lambda: loader(sampler=WeightedRandomSampler([1.0] * SIZE, SIZE)),
    "inside a batch sampler": lambda: DataLoader(
        DATA, batch_sampler=BatchSampler(RandomSampler(DATA, replacement=True), 20, False)
    ),
    "a batch sampler of one's own": lambda: DataLoader(
        DATA, batch_sampler=Given([[i, i] for i in range(SIZE)])
    ),
    "a sampler of one's own": lambda: loader(sampler=Given([0, *range(SIZE - 1)])),
    "batches as a sampler": lambda: DataLoader(
        DATA, sampler=BatchSampler(RandomSampler(DATA, True), 20, False), batch_size=None
    ),
    "a list": lambda: loader(sampler=[0, *range(SIZE - 1)]),
    "a list of tensors": lambda: loader(sampler=list(torch.zeros(SIZE, dtype=torch.long))),
    "a subset": lambda: loader(Subset(DATA, [0, *range(SIZE - 1)])),
    "a subset by tensors": lambda: loader(Subset(DATA, torch.zeros(SIZE).long())),
    "a negative index": lambda: loader(Subset(DATA, [-1, *range(1, SIZE)])),
    "nested subsets": lambda: loader(Subset(Subset(DATA, [0, 1, 1]), [1, 2])),
    "a concatenation": lambda: loader(ConcatDataset([DATA, DATA])),
    "overlapping parts": lambda: loader(
        ConcatDataset([Subset(DATA, range(50)), Subset(DATA, range(49, 96))])
    ),
    "wrapped by Lightning": lambda: loader(
        sampler=wrapped(WeightedRandomSampler([1.0] * SIZE, SIZE))
    ),
}


def wrapped(sampler, **options):
    from lightning.fabric.utilities.distributed import DistributedSamplerWrapper

    return DistributedSamplerWrapper(sampler, num_replicas=2, rank=0, **options)


@pytest.mark.parametrize("case", REPEATING)
def test_a_loader_that_repeats_examples_is_refused(case):
    with pytest.raises(PartialPassError, match=r"each once, but .* repeats examples"):
        checked(REPEATING[case]())


PARTIAL = {
    "too few": (lambda: loader(data(96)), "its loader has 96 examples"),
    "too many": (lambda: loader(data(194)), r"has 194 examples \(2 times as many\)"),
    "tokens": (lambda: loader(data(1)), r"has 1 example \(97 values for each\?"),
    "drop_last": (lambda: loader(drop_last=True), "drop_last=True and leaves out the last 17"),
    "drop_last of batches": (
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(range(SIZE), 20, True)),
        "leaves out the last 17",
    ),
    "a part": (lambda: loader(sampler=SubsetRandomSampler(range(90))), "has 90 examples"),
    "own batches": (
        lambda: DataLoader(DATA, batch_sampler=Given([[0, 1], [2]])),
        "has 3 examples",
    ),
    "divided": (
        lambda: loader(data(90), sampler=DistributedSampler(data(90), num_replicas=2, rank=0)),
        "has 90 examples",
    ),
    "divided without a rest": (
        lambda: loader(sampler=DistributedSampler(DATA, 2, 0, drop_last=True)),
        "leaves out the last 1",
    ),
    "divided, then cut": (
        lambda: loader(sampler=DistributedSampler(DATA, 2, 0), drop_last=True),
        "leaves out the last 9",
    ),
    "a stream": (lambda: loader(SizedStream(96)), "has 96 examples"),
    "nothing": (lambda: [], "its loader is empty"),
    "an empty set": (lambda: DataLoader(Subset(DATA, [])), "has 0 examples"),
}


@pytest.mark.parametrize("case", PARTIAL)
def test_a_loader_that_is_not_the_holdout_is_refused(case):
    make, words = PARTIAL[case]
    with pytest.raises(PartialPassError, match=words) as caught:
        checked(make())
    assert "Nothing was released or charged" in str(caught.value)


WHOLE = {
    "shuffled": lambda: loader(shuffle=True),
    "weighted without replacement": lambda: loader(
        sampler=WeightedRandomSampler([1.0] * SIZE, SIZE, replacement=False)
    ),
    "a sampler of one's own": lambda: loader(sampler=Given(range(SIZE))),
    "a random subset": lambda: loader(sampler=SubsetRandomSampler(range(SIZE))),
    "drop_last without a rest": lambda: loader(batch_size=97, drop_last=True),
    "a subset": lambda: loader(Subset(data(200), range(3, 100))),
    "parts": lambda: loader(ConcatDataset([Subset(DATA, range(50)), Subset(DATA, range(50, 97))])),
    "divided": lambda: loader(sampler=DistributedSampler(DATA, num_replicas=2, rank=0)),
    "wrapped by Lightning": lambda: loader(sampler=wrapped(Given(range(SIZE)))),
}


@pytest.mark.parametrize(
    ("order", "kept"), [(range(SIZE), True), (range(SIZE)[::-1], False)], ids=["in order", "sorted"]
)
@pytest.mark.parametrize(
    "wrap", [Given, lambda order: wrapped(Given(order), shuffle=False)], ids=["own", "ranks"]
)
def test_a_sampler_that_sorts_is_refused_where_blocks_are_cut(wrap, order, kept):
    """Sorted by length, one example that is longer would move many into other blocks."""
    blocks = th.Blockwise(torch.mean, 5, 0.0, 1.0)
    given, own = loader(sampler=wrap(order)), make_holdout(size=SIZE, statistics={"m": blocks})
    if kept:
        assert HoldoutLoader(given, own).loader is given
        return
    with pytest.raises(InvalidArgumentError, match=r"\['m'\] need it.*Nothing was"):
        HoldoutLoader(given, own)


UNKNOWN = {
    "own batches": lambda: DataLoader(DATA, batch_sampler=Given([range(60), range(60, 97)])),
    "a stream": lambda: loader(Stream()),
    "a sized stream": lambda: loader(SizedStream(SIZE)),
    "items that are batches": lambda: DataLoader([DATA[:60], DATA[60:]], batch_size=None),
    "items that become several": lambda: loader(data(49), collate_fn=pairs),
    "a list": lambda: [DATA[:60], DATA[60:]],
    "a sampler that cannot be copied": lambda: DataLoader(
        DATA, batch_sampler=Given([[0, 0]], baggage=(each for each in ()))
    ),
    "subset by name": lambda: DataLoader(
        Subset({"a": 1, "b": 2}, ["a", "b"]), batch_size=None, sampler=None
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_loader_tells_the_rows_of_each_batch(case):
    known = checked(WHOLE[case]())
    size, share = known.loader.batch_size, len(known.loader.sampler)
    assert [len(known.rows(i)) for i in range(5)] == [1] * 5
    assert known.rows(0)[0] == min(size, share)
    assert sum(known.rows(i)[0] for i in range(5)) == share


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_a_loader_does_not_tell_is_left_to_the_pass(case):
    known = checked(UNKNOWN[case]())
    known.require_values("val_acc", 2, batch=0)


def same(items):
    return torch.utils.data.default_collate(items)


def test_an_own_collation_is_doubted_until_the_first_batch():
    for size in (20, 200):
        known = checked(loader(data(49), collate_fn=same, batch_size=size))
        known.require_values("val_acc", 98, batch=0)
        with pytest.raises(PartialPassError, match="its loader has 49 examples"):
            known.require_values("val_acc", min(size, 49), batch=0)
    checked(loader(collate_fn=same)).require_values("val_acc", 20, batch=0)
    with pytest.raises(PartialPassError, match="its loader has 98 examples"):
        checked(loader(data(98), collate_fn=same))


def test_a_batch_of_a_stream_has_at_most_its_size():
    known = checked(loader(Stream()))
    known.require_values("val_acc", 20, batch=0)
    with pytest.raises(PartialPassError, match="3 values for each example"):
        known.require_values("val_acc", 60, batch=0)


def test_looking_at_a_sampler_leaves_it_and_the_generators_as_they_were():
    sampler, random = Given(list(range(SIZE))), Shuffled(range(SIZE))
    before = torch.get_rng_state()
    checked(loader(sampler=sampler))
    checked(loader(sampler=random))
    assert sampler.drawn == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_only_a_multiple_is_named_because_a_count_may_be_a_value():
    known = checked(loader())
    said = set()
    for values in (0, 7, 19, 21, 84):
        with pytest.raises(PartialPassError, match="returned another number") as caught:
            known.require_values("val_acc", values, batch=0)
        said.add(str(caught.value))
    assert len(said) == 1
    for values, times in ((40, 2), (700, 35)):
        with pytest.raises(PartialPassError, match=f"{times} values for each example"):
            known.require_values("val_acc", values, batch=0)


# In a Trainer


def trained(steps):
    def training_step(self, batch, batch_idx):
        steps.append(batch_idx)
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    return training_step


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("options", [{}, {"num_sanity_val_steps": 0}], ids=["sanity", "none"])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    ("val", "size", "words"),
    [
        (lambda: loader(), SIZE + 3, "its loader has 97 examples"),
        (lambda: loader(drop_last=True), SIZE, "drop_last=True"),
        (lambda: loader(sampler=RandomSampler(DATA, replacement=True)), SIZE, "RandomSampler"),
        (lambda: loader(ConcatDataset([DATA, data(3)])), SIZE, "100 examples"),
    ],
    ids=["size", "drop_last", "replacement", "another set"],
)
class TestBeforeTraining:
    pytestmark = IN_A_TRAINER

    def test_a_wrong_loader(self, namespace, options, every, val, size, words):
        account, steps = holdout(size=size), []
        module = network(namespace, training_step=trained(steps))
        run = trainer(
            [guard_class(namespace)(account)], namespace, check_val_every_n_epoch=every, **options
        )
        with pytest.raises(PartialPassError, match=words):
            fit(run, module, val=val())
        assert (steps, account.status().queries) == ([], 0)


def per_token(self, batch, batch_idx):
    return {k: v.repeat_interleave(35) for k, v in per_example(self, batch).items()}


def filtered(self, batch, batch_idx):
    values = per_example(self, batch)
    return {k: v[values["val_acc"]] for k, v in values.items()}


class TestInATrainer:
    pytestmark = IN_A_TRAINER

    @pytest.mark.parametrize("namespace", NAMESPACES)
    @pytest.mark.parametrize(
        ("step", "words"),
        [(per_token, "35 values for each example"), (filtered, "another number")],
    )
    def test_values_are_counted_in_the_sanity_check(self, namespace, step, words):
        account, steps = holdout(), []
        module = network(namespace, validation_step=step, training_step=trained(steps))
        with pytest.raises(PartialPassError, match=words):
            fit(trainer([guard_class(namespace)(account)], namespace), module)
        assert (steps, account.status().queries) == ([], 0)

    @pytest.mark.parametrize("namespace", NAMESPACES)
    def test_without_one_they_are_counted_in_the_first_batch(self, namespace):
        batches = []

        def step(self, batch, batch_idx):
            batches.append(batch_idx)
            return per_token(self, batch, batch_idx)

        guard = guard_class(namespace)(holdout())
        with pytest.raises(PartialPassError, match="35 values for each example"):
            fit(
                trainer([guard], namespace, num_sanity_val_steps=0),
                network(namespace, validation_step=step),
            )
        assert set(batches) == {0}  # looked at, then run

    @pytest.mark.parametrize("case", [case for case in WHOLE if "ivided" not in case][:-1])
    def test_whole_loaders_pass(self, case):
        account = holdout()
        guard = guard_class(NAMESPACES[0])(account)
        fit(trainer([guard], max_epochs=1), network(), val=WHOLE[case]())
        assert account.status().queries == 2

    @pytest.mark.parametrize("case", ["a stream", "a sized stream", "own batches"])
    def test_loaders_that_tell_nothing_pass_if_the_pass_is_whole(self, case):
        account = holdout()
        guard = guard_class(NAMESPACES[0])(account)
        fit(trainer([guard], max_epochs=1), network(), val=UNKNOWN[case]())
        assert account.status().queries == 2

    def test_validate_looks_at_its_own_loader_and_not_at_that_of_the_fit(self):
        account, module = holdout(), network()
        run = fit(trainer([guard_class(NAMESPACES[0])(account)], max_epochs=1), module)
        with pytest.raises(PartialPassError, match="96 examples"):
            quietly(run.validate, module, loader(data(96)), verbose=False)
        with pytest.raises(PartialPassError, match="drop_last"):
            quietly(run.validate, module, loader(drop_last=True), verbose=False)
        quietly(run.validate, module, loader(shuffle=True), verbose=False)

    def test_the_test_stage(self):
        statistics = {"test_loss": th.BoundedMean(0.0, 5.0), "test_acc": th.ZeroOne()}
        guard = guard_class(NAMESPACES[0])(holdout(statistics=statistics), stage="test")
        with pytest.raises(PartialPassError, match="drop_last"):
            quietly(trainer([guard]).test, network(), loader(drop_last=True), verbose=False)

    def test_each_loader_of_several_has_its_own_size(self):
        def step(self, batch, batch_idx, dataloader_idx=0):
            return {f"loss_{dataloader_idx}": per_example(self, batch)["val_loss"]}

        guards = [
            guard_class(NAMESPACES[0])(
                holdout(name=f"part {i}", size=size, statistics={f"loss_{i}": th.ZeroOne()}),
                dataloader_idx=i,
            )
            for i, size in enumerate((SIZE, 40))
        ]
        with pytest.raises(PartialPassError, match="'part 1', each once, but its loader has 41"):
            fit(
                trainer(guards, num_sanity_val_steps=0),
                network(validation_step=step),
                val=[loader(), loader(data(41))],
            )

    def test_a_module_without_a_step_is_told(self):
        module = network()
        bare = type(module).__mro__[1]

        class Bare(bare):
            forward = type(module).forward

        with pytest.raises(InvalidArgumentError, match="to define `validation_step`"):
            guard_class(NAMESPACES[0])(holdout()).setup(trainer([]), Bare(), "fit")
