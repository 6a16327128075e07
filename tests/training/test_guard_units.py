"""Groups, text, dictionaries and queries through a guard and a real Trainer."""

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch_holdout.errors import InvalidArgumentError, PartialPassError, UnguardedLogError
from torch_holdout.lightning import HoldoutGuard
from torchmetrics.retrieval import RetrievalMAP
from torchmetrics.text import BLEUScore

from support.builders.guarded import IN_A_TRAINER, SIZE, data, holdout, loader, network, trainer

pytestmark = IN_A_TRAINER
EXACT = th.Ladder(step=0.0)
IDS = [f"patient {(i * i) % 23}" for i in range(SIZE)]
NUMBERS = torch.tensor([(i * i) % 23 for i in range(SIZE)])
WORDS = ["zero", "one", "two", "three"]


class Rows(Dataset):
    """Examples with their patient, as text or a number."""

    def __init__(self, ids):
        self.data, self.ids = data(), ids

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return (*self.data[index], self.ids[index])


def account(statistic, **changes):
    arguments = {"statistics": {"val": statistic}, "mechanism": EXACT, "grid": 2**20, "budget": 20}
    return holdout(**{**arguments, **changes})


def losses(module, batch):
    return functional.cross_entropy(module(batch[0]), batch[1], reduction="none")


def with_ids(module, batch, batch_idx):
    return {"val": (losses(module, batch), batch[2])}


def by_place(module, batch, batch_idx):
    return {"val": losses(module, batch)}


def fitted(own, step, dataset, module=None, **options):
    """Train for two epochs; return the module and what was published last."""
    module = module or network(validation_step=step)
    guard = HoldoutGuard(own, check_data=False)
    run = trainer([guard], max_epochs=2, num_sanity_val_steps=1)
    run.fit(module, loader(), DataLoader(dataset, batch_size=20, **options))
    return module, float(run.callback_metrics["val"])


def grouped_by_hand(module):
    module.eval()
    with torch.no_grad():
        values = losses(module, data().tensors).clamp(0, 5).double()
    return float(torch.stack([values[i == NUMBERS].mean() for i in NUMBERS.unique()]).mean())


class TestGroups:
    @pytest.mark.parametrize("ids", [IDS, NUMBERS], ids=["text", "numbers"])
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_ids_in_the_output_go_with_any_order(self, ids, shuffle):
        own = account(
            th.GroupedMean(0.0, 5.0, groups=ids),
            mechanism=th.Thresholdout(threshold=0.0, sigma=0.0, guess="last"),
        )
        module, value = fitted(own, with_ids, Rows(ids), shuffle=shuffle)
        assert value == pytest.approx(grouped_by_hand(module), abs=1e-4)
        assert own.status().queries == 2

    def test_places_go_with_the_datasets_order(self):
        own = account(
            th.GroupedMean(0.0, 5.0, groups=IDS),
            mechanism=th.Thresholdout(threshold=0.0, sigma=0.0, guess="last"),
        )
        module, value = fitted(own, by_place, Rows(IDS))
        assert value == pytest.approx(grouped_by_hand(module), abs=1e-4)

    def test_places_of_a_shuffling_loader_are_refused_before_a_charge(self):
        own = account(th.GroupedMean(0.0, 5.0, groups=IDS))
        with pytest.raises(InvalidArgumentError, match="the loader shuffles"):
            fitted(own, by_place, Rows(IDS), shuffle=True)
        assert own.status().queries == 0

    @pytest.mark.parametrize("cut", ["sampler", "batch_sampler"])
    def test_places_of_a_loader_that_sorts_are_refused_before_a_charge(self, cut):
        """They gave a patient's rows to others, without a word; in order they are taken."""
        for order, words in ((range(SIZE - 1, -1, -1), "shuffles or sorts"), (range(SIZE), None)):
            given = {"sampler": list(order), "batch_size": 20}
            if cut == "batch_sampler":
                rows = list(order)
                given = {cut: [rows[start : start + 20] for start in range(0, SIZE, 20)]}
            own = account(th.GroupedMean(0.0, 5.0, groups=IDS))
            guard = HoldoutGuard(own, check_data=False)
            run = trainer([guard], max_epochs=1, num_sanity_val_steps=1)
            sorted_rows = DataLoader(Rows(IDS), **given)
            if words is None:
                run.fit(network(validation_step=by_place), loader(), sorted_rows)
                assert own.status().queries == 1
                continue
            with pytest.raises(InvalidArgumentError, match=words):
                run.fit(network(validation_step=by_place), loader(), sorted_rows)
            assert own.status().queries == 0
            run = trainer([HoldoutGuard(own, check_data=False)], max_epochs=1)
            run.fit(network(validation_step=with_ids), loader(), DataLoader(Rows(IDS), **given))
            assert own.status().queries == 1

    def test_foreign_ids_are_a_partial_pass(self):
        own = account(th.GroupedMean(0.0, 5.0, groups=IDS))
        with pytest.raises(PartialPassError, match="not registered") as caught:
            fitted(own, with_ids, Rows([f"x{each}" for each in IDS]))
        assert "patient" not in str(caught.value)
        assert own.status().queries == 0

    def test_a_batch_mean_beside_ids_is_refused(self):
        def pooled(module, batch, batch_idx):
            return {"val": (losses(module, batch).mean().repeat(len(batch[0])), batch[2])}

        own = account(th.GroupedMean(0.0, 5.0, groups=NUMBERS))
        with pytest.raises(InvalidArgumentError, match="one number for the whole batch"):
            fitted(own, pooled, Rows(NUMBERS))
        assert own.status().queries == 0

    def test_sealed_with_patience(self, tmp_path):
        own = account(
            th.GroupedMean(0.0, 5.0, groups=IDS), mechanism=th.Sealed(evaluations=5), budget=1,
            grid=None, url=f"sqlite:///{tmp_path}/holdout.db",
        )  # fmt: skip
        guard = HoldoutGuard(own, stop=th.Patience("val", 2), check_data=False)
        module = network(validation_step=with_ids)
        run = trainer([guard], max_epochs=2, default_root_dir=tmp_path)
        run.fit(module, loader(), DataLoader(Rows(IDS), batch_size=20, shuffle=True))
        assert "val" not in run.callback_metrics
        values = own.close().values
        assert len(values) == 2
        assert values[-1].value == pytest.approx(grouped_by_hand(module), abs=1e-4)

    def test_a_careless_module_is_seen_beside_ids(self):
        kept = []

        def careless(module, batch, batch_idx):
            kept.append(losses(module, batch).mean())
            module.kept = kept
            return with_ids(module, batch, batch_idx)

        own = account(th.GroupedMean(0.0, 5.0, groups=IDS))
        with pytest.raises(UnguardedLogError):
            fitted(own, careless, Rows(IDS))
        assert own.status().queries == 0


TEXTS = [f"the class of this row is {WORDS[int(y)]}" for _, y in data()]


class TestRowsOfAnyKind:
    def test_bleu_of_texts(self):
        """A step must not read values: what it makes of tokens is decoded by the metric."""

        def texts(module, batch, batch_idx):
            found = module(batch[0]).argmax(1)
            return {"val": (list(found), list(batch[2]))}

        def bleu(tokens, target):
            said = [f"the class of this row is {WORDS[int(each)]}" for each in tokens]
            return BLEUScore()(said, [[each] for each in target])

        own = account(th.Blockwise(bleu, 6, 0.0, 1.0))
        _, value = fitted(own, texts, Rows(TEXTS))
        assert 0.5 < value <= 1
        assert own.status().queries == 2

    def test_text_that_does_not_come_from_reading_values_is_taken_as_it_is(self):
        def echoed(module, batch, batch_idx):
            module(batch[0])
            return {"val": (list(batch[2]), [[each] for each in batch[2]])}

        own = account(th.Blockwise(BLEUScore(), 6, 0.0, 1.0))
        _, value = fitted(own, echoed, Rows(TEXTS))
        assert value == pytest.approx(1.0)

    def test_a_step_that_decodes_is_refused_because_it_reads_values(self):
        def decoded(module, batch, batch_idx):
            said = [WORDS[each] for each in module(batch[0]).argmax(1).tolist()]
            return {"val": (said, [[each] for each in batch[2]])}

        own = account(th.Blockwise(BLEUScore(), 6, 0.0, 1.0))
        with pytest.raises(UnguardedLogError, match="reads a value on the host"):
            fitted(own, decoded, Rows(TEXTS))
        assert own.status().queries == 0

    def test_dictionaries(self):
        def boxes(module, batch, batch_idx):
            scores = module(batch[0]).softmax(1)
            return {
                "val": ([{"scores": each, "label": each.argmax()} for each in scores], batch[1])
            }

        def accuracy(preds, target):
            right = [int(each["label"]) == int(y) for each, y in zip(preds, target, strict=True)]
            return {"accuracy": sum(right) / len(right), "count": len(right)}

        own = account(th.Blockwise(accuracy, 10, 0.0, 1.0, select="accuracy"))
        _, value = fitted(own, boxes, Rows(IDS))
        assert 0 < value <= 1
        assert own.status().queries == 2

    def test_queries_stay_whole(self):
        indexes = torch.arange(SIZE) % 20

        def ranked(module, batch, batch_idx):
            return {"val": (module(batch[0]).softmax(1)[:, 0], batch[1] == 0, batch[2])}

        own = account(th.Blockwise(RetrievalMAP(), 5, 0.0, 1.0, groups=indexes))
        _, value = fitted(own, ranked, Rows(indexes))
        assert 0 < value <= 1

    def test_twin_that_keeps_a_dictionary_is_refused(self):
        def careless(module, batch, batch_idx):
            rows = [{"label": each} for each in module(batch[0]).argmax(1)]
            module.rows = rows
            return {"val": (rows, batch[1])}

        own = account(th.Blockwise(lambda p, t: 0.5, 10, 0.0, 1.0))
        with pytest.raises(UnguardedLogError):
            fitted(own, careless, Rows(IDS))
        assert own.status().queries == 0
