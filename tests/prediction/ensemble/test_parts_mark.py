"""Weights of another cut are refused by every way of loading them."""

import copy
import io
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset
from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction import Partition, PrivacyBudget, PrivatePredictor, SoftMajority
from torch_holdout.prediction.ensemble.places import Places, sampled
from torch_holdout.prediction.lightning import PartitionedEnsemble

from support.builders.ensembles import ADAM, data, ensemble, linear, records, same, state, trainer

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")
BY_INDEX = Partition(num_parts=4, key="index", seed=7)


def by_column(column):
    return Partition(num_parts=4, key=lambda record: int(record[0][column] * 1e6), seed=7)


def by_id(record):
    return int(record[0][0] * 1e6)


def fitted(parts, train_set=None, found=None, epochs=1, ckpt_path=None, **options):
    found = found or ensemble(linear, parts)
    run = trainer(max_epochs=epochs)
    run.fit(found, datamodule=data(train_set, parts, **options), ckpt_path=ckpt_path)
    return found, run


def through_state(found, parts, *, strict=True, change=None):
    fresh = ensemble(linear, parts)
    kept = found.state_dict()
    fresh.load_state_dict(change(kept) if change else kept, strict=strict)
    return fresh


def through_file(found, parts):
    kept = io.BytesIO()
    torch.save(found.state_dict(), kept)
    kept.seek(0)
    fresh = ensemble(linear, parts)
    fresh.load_state_dict(torch.load(kept, weights_only=True))
    return fresh


def through_predictor(found, parts):
    def around(one):
        return PrivatePredictor(
            one, SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=1.0), ledger="memory://",
            name="records", num_outputs=3,
        )  # fmt: skip

    fresh = ensemble(linear, parts)
    around(fresh).load_state_dict(around(found).state_dict())
    return fresh


def through_parent(found, parts):
    fresh = ensemble(linear, parts)
    nn.ModuleDict({"one": fresh}).load_state_dict(nn.ModuleDict({"one": found}).state_dict())
    return fresh


WAYS = {
    "strict": through_state,
    "not strict": lambda found, parts: through_state(found, parts, strict=False),
    "half precision": lambda found, parts: through_state(
        found, parts, change=lambda kept: {name: kept[name].half() for name in kept}
    ),
    "in part": lambda found, parts: through_state(
        found, parts, strict=False,
        change=lambda kept: {n: kept[n] for n in ("_extra_state", "members.weight")},
    ),
    "weights only": through_file,
    "a predictor": through_predictor,
    "a parent": through_parent,
}  # fmt: skip
CUTS = {
    "seed": (BY_INDEX, Partition(num_parts=4, key="index", seed=8)),
    "balanced": (BY_INDEX, Partition(num_parts=4, key="index", seed=7, balanced=True)),
    "key": (BY_INDEX, Partition(num_parts=4, key="content", seed=7)),
    "function": (by_column(0), by_column(1)),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", WAYS)
def test_weights_of_another_partition_are_refused(way, cut):
    one, other = CUTS[cut]
    found, _ = fitted(one)
    fresh = ensemble(linear, other)
    before = state(fresh)
    with pytest.raises(InvalidArgumentError, match="trained on, a record would be in two members"):
        WAYS[way](found, other)
    with pytest.raises(InvalidArgumentError):
        fresh.load_state_dict(found.state_dict())
    assert same(before, state(fresh))  # nothing of it was loaded
    with warnings.catch_warnings():
        warnings.simplefilter("error", HoldoutWarning)
        again = WAYS[way](found, one)
    assert again.members.weight.shape == found.members.weight.shape


class Plain(PartitionedEnsemble):
    """An ensemble that ``load_from_checkpoint`` can make without arguments."""

    parts = BY_INDEX

    def __init__(self):
        super().__init__(linear, type(self).parts, loss=nn.functional.cross_entropy, optimizer=ADAM)


@pytest.mark.parametrize("weights_only", [True, False])
def test_checkpoints_of_another_partition_are_refused(tmp_path, monkeypatch, weights_only):
    path = str(tmp_path / "members.ckpt")
    _, run = fitted(BY_INDEX, found=Plain())
    run.save_checkpoint(path, weights_only=weights_only)
    assert same(state(Plain.load_from_checkpoint(path)), state(run.lightning_module))
    monkeypatch.setattr(Plain, "parts", CUTS["seed"][1])
    for strict in (True, False):
        with pytest.raises(InvalidArgumentError, match="same partition"):
            Plain.load_from_checkpoint(path, strict=strict)
    if not weights_only:
        with pytest.raises(InvalidArgumentError, match="same partition"):
            fitted(Plain.parts, found=Plain(), ckpt_path=path, epochs=2)


def reversed_records():
    x, y = records().tensors
    return TensorDataset(x.flip(0), y.flip(0))


def without(index, train_set=None):
    train_set = train_set or records()
    return Subset(train_set, [number for number in range(len(train_set)) if number != index])


ANOTHER_ORDER = {
    "reversed": reversed_records,
    "one removed": lambda: without(40),
    "one near the end removed": lambda: without(55),
}


@pytest.mark.parametrize("change", ANOTHER_ORDER)
def test_records_that_would_change_their_part_are_refused(tmp_path, change):
    """By index a removed record moves all that follow: they would be in two members."""
    found, run = fitted(BY_INDEX)
    run.save_checkpoint(tmp_path / "members.ckpt")
    moved = ANOTHER_ORDER[change]()
    for start in (found, copy.deepcopy(found), through_file(found, BY_INDEX)):
        before = state(start)
        with pytest.raises(InvalidArgumentError, match="would be in two members: the records"):
            fitted(BY_INDEX, moved, found=start)
        assert same(before, state(start))  # nothing was learnt
    with pytest.raises(InvalidArgumentError, match="would be in two members: the records"):
        fitted(BY_INDEX, moved, epochs=2, ckpt_path=str(tmp_path / "members.ckpt"))


def replaced_records():
    x, y = (column.clone() for column in records().tensors)
    x[7], x[20] = 99.0, x[21]  # the second has two equal records then
    return TensorDataset(x, y)


def extended_records():
    x, y = records().tensors
    return TensorDataset(torch.cat([x, x[:9] + 1]), torch.cat([y, y[:9]]))


@pytest.mark.parametrize(
    ("parts", "later"),
    [
        (BY_INDEX, records),
        (BY_INDEX, replaced_records),
        (BY_INDEX, extended_records),
        (by_column(0), reversed_records),
        (by_column(0), lambda: without(3)),
        (by_column(0), extended_records),
        (Partition(num_parts=4, key="content", seed=7), lambda: without(3, reversed_records())),
    ],
)
def test_records_that_stay_in_their_part_may_be_replaced_added_or_removed(parts, later):
    found, _ = fitted(parts)
    fitted(parts, later(), found=found)
    fitted(parts, records(), found=found)


def test_keys_of_other_records_are_refused():
    parts, ids = Partition(num_parts=4, key=str, seed=7), list(range(60))
    found, _ = fitted(parts, keys=ids)
    with pytest.raises(InvalidArgumentError, match="`keys` are those of other records"):
        fitted(parts, keys=ids[::-1], found=found)
    fitted(parts, reversed_records(), keys=ids[::-1], found=found)  # the records came along
    fitted(parts, without(5), keys=ids[:5] + ids[6:], found=found)


def test_what_is_known_stays_known_over_several_fits():
    found, _ = fitted(by_column(0), without(3))
    fitted(by_column(0), without(4), found=found)
    table = {3: "a", 4: "b"}
    one, other = (Places.of([number], [torch.tensor([0])]) for number in table)
    joined = one.joined(other)
    for number in table:
        assert joined.contradict(Places.of([number], [torch.tensor([]).long(), torch.tensor([0])]))
    assert not joined.contradict(Places.of([5], [torch.tensor([]).long(), torch.tensor([0])]))


def test_members_that_are_loaded_in_part_keep_what_they_knew():
    found, _ = fitted(BY_INDEX)
    other = ensemble(linear, BY_INDEX)
    kept = {name: other.state_dict()[name] for name in ("_extra_state", "members.bias")}
    found.load_state_dict(kept, strict=False)
    with pytest.raises(InvalidArgumentError, match="would be in two members"):
        fitted(BY_INDEX, reversed_records(), found=found)
    found.load_state_dict(other.state_dict())  # whole, and never trained
    fitted(BY_INDEX, reversed_records(), found=found)


def test_another_partition_in_the_place_of_the_first_is_refused():
    """Answers are charged by it: by content, a record may change two members."""
    found, _ = fitted(BY_INDEX)
    for one in (found, copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        with pytest.raises(InvalidArgumentError, match="for another partition"):
            one.partition = CUTS["seed"][1]
        assert one.partition == BY_INDEX


@pytest.mark.parametrize("strict", [True, False])
def test_members_are_not_loaded_without_their_ensemble(strict):
    found, _ = fitted(BY_INDEX)
    fresh = ensemble(linear, CUTS["seed"][1])
    before = state(fresh.members)
    for one in (fresh, copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))):
        with pytest.raises(InvalidArgumentError, match="on which parts its members were"):
            one.members.load_state_dict(found.members.state_dict(), strict=strict)
        assert same(state(one.members), before)
    counts = found.votes_module()  # of a curator: raw votes, and no ensemble any more
    counts.load_state_dict(found.votes_module().state_dict())


@pytest.mark.parametrize("strict", [True, False])
def test_a_state_without_a_mark_is_loaded_and_says_what_was_not_compared(strict):
    found, _ = fitted(BY_INDEX)
    earlier = {name: value for name, value in state(found).items() if name != "_extra_state"}
    fresh = ensemble(linear, BY_INDEX)
    with pytest.warns(HoldoutWarning, match="do not say which parts"):
        fresh.load_state_dict(earlier, strict=strict)
    assert torch.equal(fresh.members.weight, found.members.weight)
    with pytest.warns(HoldoutWarning, match="do not say which parts"):
        nn.ModuleDict({"one": fresh}).load_state_dict(
            {f"one.{name}": value for name, value in earlier.items()}
        )


def test_a_checkpoint_of_version_0_1_0_goes_on_as_before(tmp_path):
    _, run = fitted(BY_INDEX)
    run.save_checkpoint(tmp_path / "members.ckpt")
    stored = torch.load(tmp_path / "members.ckpt", weights_only=True)
    del stored["state_dict"]["_extra_state"]
    torch.save(stored, tmp_path / "members.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HoldoutWarning)
        fitted(BY_INDEX, epochs=2, ckpt_path=str(tmp_path / "members.ckpt"))
    stored["torch_holdout_ensemble"]["partition"]["seed"] = 8
    torch.save(stored, tmp_path / "members.ckpt")
    with pytest.raises(InvalidArgumentError, match="same partition"):
        fitted(BY_INDEX, epochs=2, ckpt_path=str(tmp_path / "members.ckpt"))


@pytest.mark.parametrize("mark", [torch.zeros(3), torch.full((40,), 255), "text", None])
def test_a_mark_that_cannot_be_read_is_refused(mark):
    fresh = ensemble(linear, BY_INDEX)
    with pytest.raises(HoldoutMismatchError, match="cannot be read"):
        fresh.load_state_dict({**fresh.state_dict(), "_extra_state": mark})


def test_a_pickled_ensemble_knows_its_key_function_and_its_records(tmp_path, monkeypatch):
    """A pickle names the function; other code has that name by the time it is read."""
    parts = Partition(num_parts=4, key=by_id, seed=7)
    found, _ = fitted(parts)
    found.trainer = None
    torch.save(found, tmp_path / "members.pt")
    again = torch.load(tmp_path / "members.pt", weights_only=False)
    assert again.partition == parts
    assert same(state(again), state(found))  # with the places of records
    assert copy.deepcopy(parts) == parts
    kept = pickle.dumps(data(parts=parts))
    edited = lambda record: int(record[0][1] * 1e6)  # noqa: E731
    edited.__qualname__ = edited.__name__ = "by_id"
    monkeypatch.setitem(globals(), "by_id", edited)
    with pytest.raises(InvalidArgumentError, match="as it was when this partition was pickled"):
        torch.load(tmp_path / "members.pt", weights_only=False)
    with pytest.raises(InvalidArgumentError, match="as it was when this partition was pickled"):
        pickle.loads(kept)


def test_a_pickle_of_a_partition_without_code_is_read():
    parts = Partition(num_parts=4, key=by_id, seed=7)
    earlier = {name: value for name, value in vars(parts).items() if not name.startswith("_")}
    again = Partition.__new__(Partition)
    again.__setstate__(earlier)
    assert again == parts
    assert again.identity() == parts.identity()


def test_a_function_that_keeps_counts_can_be_pickled_after_it_has_counted():
    class Counting:
        def __init__(self):
            self.seen = 0

        def __call__(self, record):
            self.seen += 1
            return record

    parts = Partition(num_parts=4, key=Counting(), seed=7)
    before = parts.identity()
    parts.assign(range(9))
    assert copy.deepcopy(parts).identity() == before


class Augmented(Dataset):
    """Records that read differently each time."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        noise = torch.rand(()) + random.random() + np.random.rand()
        return records()[index][0] + noise.float(), records()[index][1]


def test_reading_records_draws_nothing_from_the_training():
    found, _ = fitted(BY_INDEX)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    before = torch.get_rng_state()
    Places.of(Augmented(), BY_INDEX.assign(range(60)))
    assert torch.equal(torch.get_rng_state(), before)
    assert random.random() == random.Random(0).random()
    fitted(BY_INDEX, Augmented(), found=found)


class Unreadable(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        raise ValueError("record 41 of patient Smith")


@pytest.mark.parametrize("train_set", [Unreadable(), [object()] * 8])
def test_what_cannot_be_read_is_unknown_and_nothing_is_told(train_set, capsys):
    places = Places.of(train_set, [torch.arange(8)])
    assert not places
    assert not places.contradict(Places.of(range(8), [torch.arange(8)]))
    assert capsys.readouterr() == ("", "")


def test_of_many_records_a_sample_is_kept_that_finds_a_shift():
    size = 30_000
    x = torch.arange(float(size))
    parts = Partition(num_parts=5, key="index", seed=7)
    known = Places.of(TensorDataset(x), parts.assign(x))
    assert len(known.content()) == 16 * 4096
    assert not known.contradict(Places.of(TensorDataset(x), parts.assign(x)))
    for gone in (0, 15_000, size - 20):
        rest = torch.cat([x[:gone], x[gone + 1 :]])
        assert known.contradict(Places.of(TensorDataset(rest), parts.assign(rest)))
    mixed = x[torch.randperm(size, generator=torch.Generator().manual_seed(0))]
    assert known.contradict(Places.of(TensorDataset(mixed), parts.assign(mixed)))
    for count in (1, 4096, 4097, 4160, 10**6):
        numbers = sampled(count)
        assert len(set(numbers.tolist())) == min(count, 4096)
        assert (numbers[0], numbers[-1]) == (0, count - 1)


def test_nothing_of_the_places_is_shown():
    found, _ = fitted(BY_INDEX)
    shown = f"{found!r} {found.identity()} {found._places!r}"
    content = found._places.content()
    assert len(content) == 16 * 60
    assert not any(str(row) in shown for row in np.frombuffer(content, "<u8")[::2].tolist())
