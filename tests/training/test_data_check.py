"""The guard compares what its loaders read with what the account knows, before any answer."""

import gc
import logging
import pickle
import random
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
import torch
import torch_holdout as th
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.ledger import verify
from torch_holdout.lightning import HoldoutGuard
from torch_holdout.training import data_check, data_reading
from torch_holdout.training.data_check import DataCheck
from torch_holdout.training.data_reading import RECORDS, common_indices, spread
from torch_holdout.tuning.optuna import sharing

from support.builders.guarded import (
    EXACT,
    IN_A_TRAINER,
    NAMESPACES,
    SIZE,
    TRAIN,
    data,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    per_example,
    trainer,
)
from support.builders.holdouts import make_holdout
from support.builders.sweeps import quiet_study

SPLIT = "split once, outside the objective, with a fixed generator seed"


GUESSES = {type(TRAIN): loader(data(seed=9))}


def silent_on_the_display(module, batch, batch_idx, dataloader_idx=0):
    return per_example(module, batch) if dataloader_idx == 0 else None


def check(account, dataset, guesses=None, check_data=True):
    """Do what the guard does when a pass begins."""
    loader = DataLoader(dataset, batch_size=10)
    DataCheck(account, check_data=check_data).run(loader, guesses)


def known(dataset):
    """A holdout that was made with a dataset's fingerprint."""
    return make_holdout(size=len(dataset), fingerprint=th.fingerprint(dataset))


def joined(*parts):
    return [example for part in parts for example in part]


class Transformed(Dataset):
    """A dataset with a transform, as torchvision's; counts what is read."""

    def __init__(self, inner, transform=lambda x: x):
        self.inner, self.transform, self.read = inner, transform, []

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        self.read.append(index)
        x, y = self.inner[index]
        return self.transform(x), y


class TestRegistered:
    def test_its_own_records_pass_in_any_form(self):
        own = data(60)
        x, y = own.tensors
        account = known(own)
        for form in (
            own,
            data(60),
            TensorDataset(x.double(), y.float()),
            [{"x": x, "y": int(y)} for x, y in own],
            Subset(own, list(reversed(range(60)))),
            Transformed(own),
        ):
            check(account, form)

    def test_a_new_split_is_told_how_to_repair_it(self):
        split = joined(Subset(data(60), range(12)), data(48, seed=1))
        with pytest.raises(HoldoutMismatchError, match=SPLIT) as caught:
            check(known(data(60)), split)
        assert "20 % of its records (12 of 60 compared)" in str(caught.value)
        assert "Nothing was charged" in str(caught.value)

    def test_foreign_records_and_other_preprocessing(self):
        for other in (data(60, seed=1), Transformed(data(60), lambda x: x / 3)):
            with pytest.raises(HoldoutMismatchError, match=r"0 of 60.*preprocessing"):
                check(known(data(60)), other)

    @pytest.mark.parametrize("change", ["one fewer", "one replaced"])
    def test_a_single_record(self, change):
        fewer = [*Subset(data(60), range(59))]
        other = fewer if change == "one fewer" else joined(fewer, data(1, seed=1))
        with pytest.raises(HoldoutMismatchError, match="59 of"):
            check(known(data(60)), other)

    def test_it_can_be_turned_off(self):
        check(known(data(60)), data(60, seed=1), check_data=False)

    def test_large_data_is_checked_in_part(self, monkeypatch, caplog):
        """Of 4,000 records 300 are read, about 77 of them below the bound."""
        monkeypatch.setattr(data_reading, "RECORDS", 300)
        caplog.set_level(logging.INFO, "torch_holdout")
        own = data(4_000)
        account = known(own)
        check(account, own)
        assert "300 of 4000 records" in caplog.text
        with pytest.raises(HoldoutMismatchError, match=SPLIT):
            check(
                account,
                TensorDataset(*(own.tensors[0][:800], own.tensors[1][:800])) + data(3200, 1),
            )


class TestFirstUse:
    def test_the_first_whole_dataset_is_kept(self):
        account = make_holdout(size=60)
        check(account, data(60))
        check(account, TensorDataset(data(60).tensors[0].double(), data(60).tensors[1]))
        split = joined(Subset(data(60), range(12)), data(48, seed=1))
        with pytest.raises(HoldoutMismatchError, match=f"validated on before.*{SPLIT}"):
            check(account, split)
        assert not account.status().renaming_detected
        assert "a new split is, by the guard" in str(account.status())
        assert "new split" not in str(make_holdout().status())

    def test_a_few_records_may_change(self, caplog):
        caplog.set_level(logging.INFO, "torch_holdout")
        account = make_holdout(size=60)
        check(account, data(60))
        assert caplog.text == ""
        check(account, joined(Subset(data(60), range(57)), data(3, seed=1)))
        assert "95 % of its records (57 of 60 compared)" in caplog.text

    def test_other_preprocessing_is_only_said(self):
        account = make_holdout(size=60)
        check(account, data(60))
        with pytest.warns(HoldoutWarning, match="preprocessing has changed"):
            check(account, Transformed(data(60), lambda x: x / 3))

    def test_it_is_kept_in_the_ledger(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        check(make_holdout(url, size=60), data(60))
        assert verify(url).findings == []
        again = pickle.loads(pickle.dumps(make_holdout(url, size=60)))
        with pytest.raises(HoldoutMismatchError, match=SPLIT):
            check(again, joined(Subset(data(60), range(30)), data(30, seed=1)))
        with pytest.raises(HoldoutMismatchError, match="are in 'val'"):
            make_holdout(url, name="new", size=60, fingerprint=th.fingerprint(data(60))).status()

    def test_a_part_is_not_kept(self, monkeypatch):
        monkeypatch.setattr(data_reading, "RECORDS", 50)
        account = make_holdout(size=60)
        check(account, data(60))
        check(account, joined(Subset(data(60), range(30)), data(30, seed=1)))


class TestOnce:
    def test_each_dataset_is_read_once_in_a_process(self):
        account, dataset = make_holdout(size=60), Transformed(data(60))
        for _ in range(3):
            check(account, dataset)
        assert len(dataset.read) == 68  # eight records are read twice
        check(make_holdout(size=60), dataset)  # another account
        assert len(dataset.read) == 2 * 68

    def test_no_dataset_is_kept_alive(self):
        gc.collect()
        before = len(data_check._compared)
        dataset = Transformed(data(60))
        check(make_holdout(size=60), dataset)
        assert len(data_check._compared) == before + 1
        del dataset
        gc.collect()
        assert len(data_check._compared) == before

    def test_a_list_is_remembered_by_its_guard(self):
        account, records = make_holdout(size=60), [*data(60)]
        guard = DataCheck(account, check_data=True)
        run = DataLoader(records)
        guard.run(run, None)
        records[:] = data(60, seed=1)
        guard.run(run, None)
        assert pickle.loads(pickle.dumps(guard))._held == []


class TestReading:
    def test_the_generators_are_put_back(self):
        def draws(x):
            return x + 0 * (torch.rand(1) + random.random() + np.random.rand())

        def state():
            return torch.rand(1).item(), random.random(), np.random.rand()

        outcomes = []
        for dataset in (data(60), Transformed(data(60), draws)):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            check(make_holdout(size=60), dataset)
            outcomes.append(state())
        assert outcomes[0] == outcomes[1]

    @pytest.mark.parametrize("share", [1.0, 0.2])
    def test_random_records_are_never_refused(self, share, caplog):
        def augment(x):
            return x + torch.randn(4) if torch.rand(1) < share else x

        caplog.set_level(logging.INFO, "torch_holdout")
        check(known(data(60)), Transformed(data(60), augment))
        assert "random augmentation" in caplog.text
        check(make_holdout(size=60), Transformed(data(60), augment))

    def test_what_cannot_be_compared_is_said(self, caplog):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from data(60)

        class Failing(Transformed):
            def __getitem__(self, index):
                raise FileNotFoundError("/secret/patient_7.png")

        class Unsized(Dataset):
            def __getitem__(self, index):
                return index

        caplog.set_level(logging.INFO, "torch_holdout")
        account = known(data(60))
        reasons = {
            Stream(): "cannot be read by number",
            Failing(data(60)): "raised FileNotFoundError",
            Transformed(data(60), lambda x: object()): "hold a object",
        }
        for dataset, reason in reasons.items():
            check(account, dataset)
            assert caplog.text.count(reason) == 1
            check(account, dataset)
            assert caplog.text.count(reason) == 1
        for run in ([1, 2], None):
            DataCheck(account, check_data=True).run(run, None)
        own_loader = SimpleNamespace(dataset=Unsized())
        run = own_loader
        DataCheck(account, check_data=True).run(run, None)
        assert "has no length (TypeError)" in caplog.text
        assert "patient" not in caplog.text
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        caplog.clear()
        empty = SimpleNamespace(dataset=[])
        DataCheck(make_holdout(), check_data=True).run(empty, None)
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "it is empty" in caplog.text

    def test_the_time_is_limited(self, monkeypatch, caplog):
        clock = iter(range(10_000))
        monkeypatch.setattr(data_reading.time, "monotonic", lambda: next(clock) / 10)
        caplog.set_level(logging.INFO, "torch_holdout")
        check(make_holdout(size=60), data(60))
        assert "21 of 60 records" in caplog.text

    def test_files_that_are_opened_by_reading_are_not_opened_here(self):
        class Lazy(Transformed):
            file = None

            def __getitem__(self, index):
                self.file = "opened"
                return self.inner[index]

        for dataset in (Lazy(data(60)), Subset(Lazy(data(60)), range(60))):
            check(make_holdout(size=60), dataset)
            assert getattr(dataset, "dataset", dataset).file is None

    def test_no_frame_of_the_comparison_leaves(self):
        with pytest.raises(HoldoutMismatchError) as caught:
            check(known(data(60)), data(60, seed=1))
        names = [entry.name for entry in caught.traceback]
        assert "compare_with_account" not in names
        assert caught.value.__context__ is None

    @pytest.mark.parametrize("total", [1, 2, 3, 10, 97, 1000, 30_000])
    def test_numbers_are_spread(self, total):
        wanted = min(total, RECORDS)
        numbers = spread(total, wanted)
        assert len(set(numbers)) == wanted
        tenths, _ = np.histogram(numbers[: wanted // 10], bins=10, range=(0, total))
        if total >= 1000:
            assert min(tenths) >= wanted / 200
            assert max(tenths) <= wanted / 50


class TestGuesses:
    def account(self, **changes):
        return make_holdout(mechanism=TRAIN, **changes)

    def refused(self, dataset, guess, **options):
        with pytest.raises(InvalidArgumentError, match="publishes its raw mean") as caught:
            check(self.account(size=len(dataset)), dataset, DataLoader(guess), **options)
        assert "Nothing was charged" in str(caught.value)
        return str(caught.value)

    @pytest.mark.parametrize("check_data", [True, False])
    def test_the_holdout_itself_and_parts_of_the_set_before_the_split(self, check_data):
        whole = data(100)
        train, val = random_split(whole, [70, 30], torch.Generator().manual_seed(0))
        options = {"check_data": check_data}
        assert "30 of 30" in self.refused(val, val, **options)
        assert "30 of 100" in self.refused(val, whole, **options)
        nested = Subset(Subset(whole, range(50, 100)), range(0, 50, 5))
        shared = len({50 + n for n in range(0, 50, 5)} & set(val.indices))
        assert f"{shared} of 10" in self.refused(val, nested, **options)
        parts = ConcatDataset([data(10, seed=1), whole])
        assert "30 of 110" in self.refused(val, parts, **options)
        check(self.account(size=30), val, DataLoader(train), **options)
        check(self.account(size=30), val, DataLoader(th.fixed_subset(train, 20, seed=0)), **options)

    def test_the_same_records_in_another_dataset(self):
        val = data(60)
        for guess in (data(60), joined(Subset(data(60), range(5)), data(95, seed=1))):
            self.refused(val, guess)
            check(self.account(size=60), val, DataLoader(guess), check_data=False)
        check(self.account(size=60), val, DataLoader(data(100, seed=1)))

    def test_a_chance_duplicate_is_no_guess_from_the_holdout(self):
        guess = joined(Subset(data(200), range(1)), data(199, seed=1))
        check(self.account(size=200), data(200), DataLoader(guess))

    def test_a_large_holdout_is_compared_by_its_sketch(self, monkeypatch):
        monkeypatch.setattr(data_reading, "RECORDS", 1_000)
        val = data(2_000)
        account = self.account(size=2_000, fingerprint=th.fingerprint(val))
        with pytest.raises(InvalidArgumentError, match="raw mean"):
            check(account, val, DataLoader([*Subset(val, range(0, 2_000, 4))]))
        check(account, val, DataLoader(data(500, seed=1)))

    def test_parts_that_have_changed_places(self):
        """The part that was validated on before is the holdout's, whatever the loader has now."""
        whole, account = data(60), self.account(size=30)
        first, second = Subset(whole, range(30)), Subset(whole, range(30, 60))
        check(account, first, DataLoader(second))
        with (
            pytest.warns(HoldoutWarning, match="0 of 30 compared"),
            pytest.raises(InvalidArgumentError, match="30 of 30 are the holdout's own"),
        ):
            check(account, second, DataLoader(first))

    def test_a_display_that_was_the_holdout_before(self):
        whole, account = data(60), make_holdout(size=30, mechanism=th.Sealed(evaluations=3))
        first, second = (DataLoader(Subset(whole, range(n, n + 30))) for n in (0, 30))
        DataCheck(account, check_data=True).run(first, None, [second])
        with (
            pytest.warns(HoldoutWarning, match="0 of 30 compared"),
            pytest.raises(InvalidArgumentError, match="shows the holdout's values"),
        ):
            DataCheck(account, check_data=True).run(second, None, [first])

    def test_other_preprocessing_and_its_own_training_records_pass(self):
        account = self.account(size=30)
        check(account, data(30), DataLoader(data(50, seed=1)))
        with pytest.warns(HoldoutWarning, match="preprocessing"):
            check(account, data(30, seed=2), DataLoader(data(50, seed=3)))

    def test_a_mechanism_without_guesses_reads_none(self):
        check(make_holdout(size=60), data(60), DataLoader(data(60)))

    def test_indices(self):
        base = data(10)
        assert common_indices(Subset(base, [0, -1]), Subset(base, [9])) == 1
        assert common_indices(Subset(base, [0]), data(10)) is None
        both = ConcatDataset([base, data(5, seed=1)])
        assert common_indices(Subset(both, [3, 12]), Subset(base, [3])) == 1
        assert common_indices(Subset(both, [12]), Subset(base, [2])) is None


@pytest.mark.parametrize("namespace", NAMESPACES)
class TestInATrainer:
    pytestmark = IN_A_TRAINER

    @pytest.mark.parametrize("sanity", [0, 2])
    def test_foreign_data_is_refused_before_training(self, namespace, sanity):
        account = holdout(fingerprint=th.fingerprint(data(seed=1)))
        steps = []
        module = network(namespace, on_train_batch_start=lambda self, *_: steps.append(1))
        run = trainer([guard_class(namespace)(account)], namespace, num_sanity_val_steps=sanity)
        with pytest.raises(HoldoutMismatchError, match="preprocessing"):
            fit(run, module)
        assert steps == []
        assert account.status().queries == 0

    def test_its_own_data_is_answered(self, namespace):
        account = holdout(fingerprint=th.fingerprint(data()))
        guard = guard_class(namespace)(account)
        fit(trainer([guard], namespace, max_epochs=1), network(namespace))
        assert set(guard.answers) == {"val_loss", "val_acc"}

    def test_validate_and_test(self, namespace):
        for stage in ("validate", "test"):
            names = ("val_loss", "val_acc") if stage == "validate" else ("test_loss", "test_acc")
            account = holdout(
                statistics={name: th.BoundedMean(0, 5) for name in names},
                fingerprint=th.fingerprint(data(seed=1)),
            )
            guard = guard_class(namespace)(account, stage=stage)
            with pytest.raises(HoldoutMismatchError, match="preprocessing"):
                getattr(trainer([guard], namespace), stage)(network(namespace), loader())

    def test_it_can_be_turned_off(self, namespace):
        account = holdout(fingerprint=th.fingerprint(data(seed=1)))
        guard = guard_class(namespace)(account, check_data=False)
        fit(trainer([guard], namespace, max_epochs=1), network(namespace))
        assert account.status().queries == 2

    def test_the_holdout_as_its_own_guess(self, namespace):
        account = holdout(mechanism=TRAIN)
        guard = guard_class(namespace)(account, guess_dataloaders=loader())
        with pytest.raises(InvalidArgumentError, match="publishes its raw mean"):
            fit(trainer([guard], namespace), network(namespace))
        assert account.status().queries == 0

    @pytest.mark.parametrize("shown", [data(), Subset(data(), range(40))])
    @pytest.mark.parametrize("mechanism", [TRAIN, th.Sealed(evaluations=3)])
    def test_the_holdout_as_its_own_display(self, namespace, shown, mechanism):
        account = holdout(mechanism=mechanism)
        own = guard_class(namespace)(
            account, public_dataloaders=(1,), guess_dataloaders=GUESSES.get(type(mechanism))
        )
        module = network(namespace, validation_step=silent_on_the_display)
        with pytest.raises(InvalidArgumentError, match="shows the holdout's values"):
            fit(trainer([own], namespace), module, val=[loader(), loader(shown)])
        assert account.status().queries == 0

    @pytest.mark.parametrize("mechanism", [EXACT, th.Sealed(evaluations=3)])
    def test_the_holdout_is_not_tested_without_a_guard(self, namespace, mechanism):
        """Its test_step would log raw values, by the Trainer that has the guard of validation."""
        account, seen = holdout(mechanism=mechanism), []
        guard = guard_class(namespace)(account)
        module = network(
            namespace,
            test_step=lambda self, batch, batch_idx: seen.append(
                self.log("test_loss", per_example(self, batch)["val_loss"].mean())
            ),
        )
        run = trainer([guard], namespace, max_epochs=1)
        fit(run, module)
        with pytest.raises(InvalidArgumentError, match="97 of 97 are the holdout's own") as found:
            run.test(module, loader(), verbose=False)
        assert "trainer.validate()" in str(found.value)
        assert not seen
        run.test(module, loader(data(seed=7)), verbose=False)
        assert seen
        if not mechanism.shows_values:
            account.close()  # its values are public now
            run.test(module, loader(), verbose=False)

    def test_subsets_of_one_dataset_are_compared_without_reading(self, namespace):
        whole, account = data(2 * SIZE), holdout(mechanism=th.Sealed(evaluations=3))
        sealed = loader(Subset(whole, range(SIZE)))
        guard = guard_class(namespace)(account, public_dataloaders=(1,), check_data=False)
        for first, fits in ((SIZE - 1, False), (SIZE, True)):
            module = network(namespace, validation_step=silent_on_the_display)
            val = [sealed, loader(Subset(whole, range(first, 2 * SIZE)))]
            run = trainer([guard], namespace, max_epochs=1)
            with nullcontext() if fits else pytest.raises(InvalidArgumentError, match="1 of 98"):
                fit(run, module, val=val)
        assert account.status().queries == 1

    def test_the_run_is_the_same_with_and_without(self, namespace):
        weights = []
        for check_data in (True, False):
            torch.manual_seed(0)
            module = network(namespace)
            guard = guard_class(namespace)(holdout(seed=1), check_data=check_data)
            shuffled = loader(Transformed(data()), drop_last=True, shuffle=True)
            fit(trainer([guard], namespace), module, shuffled, loader(Transformed(data())))
            weights.append(torch.cat([p.flatten() for p in module.parameters()]))
        assert torch.equal(*weights)


class TestAStudyThatSplitsAnew:
    """Optuna's own example splits in the objective: each trial has another holdout."""

    pytestmark = IN_A_TRAINER

    def study(self, url, fingerprinted, seed):
        whole = data(485)  # a fifth is the holdout

        def objective(trial):
            generator = torch.Generator().manual_seed(seed(trial))
            train, val = random_split(whole, [388, 97], generator)
            own = {"fingerprint": th.fingerprint(val)} if fingerprinted else {}
            account = holdout(url, **own)
            with sharing(trial, account, "val_acc") as shared:
                guard = HoldoutGuard(account)
                run = trainer([guard, shared.pruning(guard)], max_epochs=1)
                fit(run, network(), loader(train, drop_last=True), loader(val))
                return shared.value

        study = quiet_study(pruner=optuna.pruners.NopPruner())
        study.optimize(objective, n_trials=3)
        return study

    @pytest.mark.parametrize("fingerprinted", [True, False])
    def test_it_is_refused_with_the_sentence_that_repairs_it(self, tmp_path, fingerprinted):
        url = f"sqlite:///{tmp_path}/holdout.db"
        with pytest.raises(HoldoutMismatchError, match=SPLIT) as caught:
            self.study(url, fingerprinted, seed=lambda trial: trial.number)
        assert "of 97 compared" in str(caught.value)

    @pytest.mark.parametrize("fingerprinted", [True, False])
    def test_the_repaired_study_runs(self, tmp_path, fingerprinted):
        study = self.study(f"sqlite:///{tmp_path}/holdout.db", fingerprinted, seed=lambda _: 0)
        assert len(study.trials) == 3
