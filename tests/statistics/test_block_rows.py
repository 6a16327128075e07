"""Blocks of text, of dictionaries and of whole groups, and one entry of a metric's result."""

import pickle
import warnings
from collections import Counter

import pytest
import torch
import torch_holdout as th
import torchmetrics
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.statistics.rows import listed_layout
from torchmetrics.classification import BinaryF1Score, BinaryPrecision
from torchmetrics.retrieval import RetrievalMAP
from torchmetrics.text import BLEUScore, ROUGEScore

EXACT = th.Ladder(step=0.0)
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def account(statistic, size):
    return th.ReusableHoldout(
        "memory://", name="val", size=size, statistics={"m": statistic}, mechanism=EXACT, budget=9,
        grid=2**20,
    )  # fmt: skip


def asked(statistic, *columns, batch=7, query="w"):
    holdout = account(statistic, len(columns[0]))
    sums = holdout.accumulator("m")
    for start in range(0, len(columns[0]), batch):
        sums.update(*(column[start : start + batch] for column in columns))
    return holdout.release("m", sums, query=query).value


def sentences(size, seed):
    picks = torch.randint(len(WORDS), (size, 8), generator=torch.Generator().manual_seed(seed))
    return [" ".join(WORDS[i] for i in row) for row in picks.tolist()]


def translations(size=60):
    target = sentences(size, 0)
    noise = sentences(size, 1)
    preds = [t if i % 2 else " ".join(t.split()[:6] + n.split()[6:])
             for i, (t, n) in enumerate(zip(target, noise, strict=True))]  # fmt: skip
    return preds, [[each] for each in target]


def detections(size=40):
    """Boxes that are found or not, as dictionaries of tensors with any number of rows."""
    generator = torch.Generator().manual_seed(2)
    preds, target = [], []
    for number in range(size):
        corners = 10 * torch.rand(number % 4, 2, generator=generator)
        boxes = torch.cat([corners, corners + 3], dim=1)
        labels = torch.randint(3, (len(boxes),), generator=generator)
        found = torch.rand(len(boxes), generator=generator) < 0.7
        target.append({"boxes": boxes, "labels": labels})
        preds.append({"boxes": boxes[found] + 0.1, "labels": labels[found],
                      "scores": torch.rand(int(found.sum()), generator=generator)})  # fmt: skip
    return preds, target


def average_precision(preds, target):
    """A small mean average precision at one overlap, over the labels of a block's images."""
    by_label = []
    for label in range(3):
        hits, scores, wanted = [], [], 0
        for found, true in zip(preds, target, strict=True):
            boxes = true["boxes"][true["labels"] == label]
            wanted += len(boxes)
            own = found["labels"] == label
            scores += found["scores"][own].tolist()
            hits += [bool(len(boxes)) and bool((boxes - box).abs().amax(1).min() < 1)
                     for box in found["boxes"][own]]  # fmt: skip
        if wanted:
            order = sorted(range(len(hits)), key=lambda i: -scores[i])
            right = torch.tensor([hits[i] for i in order], dtype=torch.float64)
            precision = right.cumsum(0) / torch.arange(1, len(right) + 1)
            by_label.append(float((precision * right).sum() / wanted))
    return {"map": torch.tensor(sum(by_label) / len(by_label)), "classes": torch.tensor([0, 1, 2])}


class Detection(torchmetrics.Metric):
    """The same as a metric that keeps lists, as torchmetrics' own does."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("images", default=[], dist_reduce_fx=None)

    def update(self, preds, target):
        self.images += list(zip(preds, target, strict=True))

    def compute(self):
        return average_precision(*zip(*self.images, strict=True))


def blocks_of(size, blocks, seed=0):
    return [part.tolist() for part in fixed_permutation(size, seed).tensor_split(blocks)]


class TestText:
    def test_bleu_is_the_mean_over_blocks(self):
        preds, target = translations()
        by_hand = [
            float(BLEUScore()([preds[i] for i in block], [target[i] for i in block]))
            for block in blocks_of(60, 6)
        ]
        statistic = th.Blockwise(BLEUScore(), 6, 0.0, 1.0)
        assert asked(statistic, preds, target) == pytest.approx(sum(by_hand) / 6, abs=1e-4)
        assert 0.3 < sum(by_hand) / 6 < 0.95

    def test_batches_do_not_matter_and_tuples_are_lists(self):
        preds, target = translations()
        statistic = th.Blockwise(BLEUScore(), 6, 0.0, 1.0)
        found = {asked(statistic, preds, target, batch=batch) for batch in (1, 7, 60)}
        assert found == {asked(statistic, tuple(preds), target)}

    def test_one_entry_of_rouge(self):
        preds, target = translations(12)
        metric = ROUGEScore(rouge_keys="rouge1")
        statistic = th.Blockwise(metric, 3, 0.0, 1.0, select="rouge1_fmeasure")
        assert 0.3 < asked(statistic, preds, [each[0] for each in target]) < 1

    def test_text_beside_tensors(self):
        def agreement(texts, lengths):
            return sum(len(t) == n for t, n in zip(texts, lengths.tolist(), strict=True)) / len(
                texts
            )

        texts = sentences(20, 3)
        lengths = torch.tensor([len(each) for each in texts])
        assert asked(th.Blockwise(agreement, 4, 0.0, 1.0), texts, lengths) == 1.0

    def test_a_metric_that_takes_no_text_is_refused_before_a_charge(self):
        holdout = account(th.Blockwise(lambda p, t: (p - t).mean(), 4, 0.0, 1.0), 20)
        with pytest.raises(InvalidArgumentError, match="2 arguments: list of text, list of text"):
            holdout.accumulator("m").update(sentences(20, 1), sentences(20, 2))
        assert holdout.status().queries == 0


class TestDictionaries:
    @pytest.mark.parametrize("metric", [average_precision, Detection()], ids=["function", "metric"])
    def test_detection_is_the_mean_over_blocks(self, metric):
        preds, target = detections()
        by_hand = [
            float(average_precision([preds[i] for i in b], [target[i] for i in b])["map"])
            for b in blocks_of(40, 4)
        ]
        statistic = th.Blockwise(metric, 4, 0.0, 1.0, select="map")
        assert asked(statistic, preds, target) == pytest.approx(sum(by_hand) / 4, abs=1e-4)
        assert 0.2 < sum(by_hand) / 4 < 0.95

    def test_a_reused_buffer_does_not_change_what_was_kept(self):
        preds, target = detections()
        buffer = {"boxes": None, "labels": None, "scores": None}
        holdout = account(th.Blockwise(average_precision, 4, 0.0, 1.0, select="map"), 40)
        sums = holdout.accumulator("m")
        for pred, true in zip(preds, target, strict=True):
            buffer |= {key: value.clone() for key, value in pred.items()}
            sums.update([buffer], [true])
            for value in buffer.values():
                value.zero_()
        statistic = holdout.statistics["m"]
        assert holdout.release("m", sums, query="w").value == asked(statistic, preds, target)

    def test_tensors_with_a_graph_are_kept_without_it(self):
        weight = torch.ones(1, requires_grad=True)
        holdout = account(th.Blockwise(lambda rows: float(len(rows)), 2, 0.0, 9.0), 4)
        sums = holdout.accumulator("m")
        sums.update([{"score": weight * 2}] * 4)
        assert holdout.release("m", sums, query="w").value == pytest.approx(2.0, abs=1e-4)

    def test_the_layout_does_not_tell_how_many_objects_were_found(self):
        one, other = ([{"boxes": torch.rand(n, 4), "labels": torch.ones(n)}] for n in (2, 7))
        assert listed_layout(one) == listed_layout(other)

    def test_the_keys_are_named_where_one_is_to_be_selected(self):
        preds, target = detections()
        missing = "`select` names"
        for select, words in (
            (None, r"keys \['classes', 'map'\]"),
            ("mAP", missing),
            (lambda result: result["mAP"], missing),
            (0, missing),
            ("classes", "gave several"),
        ):
            statistic = th.Blockwise(average_precision, 4, 0.0, 1.0, select=select)
            with pytest.raises(InvalidArgumentError, match=words):
                account(statistic, 40).accumulator("m").update(preds, target)

    def test_rows_that_cannot_be_made_up_are_not_tried_and_that_is_said(self):
        class Molecule:
            mass = 0.5

        statistic = th.Blockwise(lambda rows: sum(r.mass for r in rows) / len(rows), 2, 0.0, 1.0)
        sums = account(statistic, 4).accumulator("m")
        with pytest.warns(HoldoutWarning, match=r"cannot be made up \(.*Molecule\)"):
            sums.update([Molecule()] * 4)

    def test_rows_that_cannot_be_copied_are_refused_without_their_content(self):
        class Stubborn:
            def __deepcopy__(self, memo):
                raise ValueError("secret 731")

        holdout = account(th.Blockwise(lambda rows: 0.5, 2, 0.0, 1.0), 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldoutWarning)
            with pytest.raises(InvalidArgumentError) as caught:
                holdout.accumulator("m").update([Stubborn()] * 4)
        assert "ValueError" in str(caught.value)
        assert "731" not in str(caught.value)

    @pytest.mark.parametrize(
        "columns",
        [
            (["a"], ["a", "b"]),
            (["a"], torch.ones(2)),
            ("text",),
            ({"a": 1},),
            (),
            (torch.tensor(1),),
        ],
    )
    def test_columns_that_are_not_rows_are_refused(self, columns):
        holdout = account(th.Blockwise(lambda *rows: 0.5, 2, 0.0, 1.0), 4)
        with pytest.raises(InvalidArgumentError, match="equally long"):
            holdout.accumulator("m").update(*columns)

    def test_lists_and_tensors_do_not_change_places_between_batches(self):
        sums = account(th.Blockwise(lambda *rows: 0.5, 2, 0.0, 1.0), 4).accumulator("m")
        sums.update(["a", "b"], torch.ones(2))
        with pytest.raises(InvalidArgumentError, match="as the first"):
            sums.update(torch.ones(2), ["a", "b"])


def retrieval(queries=30, seed=0):
    """Documents of queries, of 2 to 9 each, mixed; every query has a relevant one."""
    generator = torch.Generator().manual_seed(seed)
    indexes = torch.arange(queries).repeat_interleave(2 + torch.arange(queries) % 8)
    indexes = indexes[torch.randperm(len(indexes), generator=generator)]
    target = torch.rand(len(indexes), generator=generator) < 0.3
    for query in range(queries):
        target[(indexes == query).nonzero()[0]] = True
    return torch.rand(len(indexes), generator=generator), target, indexes


class TestGroups:
    def test_queries_stay_whole(self):
        preds, target, indexes = retrieval()
        seen = []

        def kept_whole(p, t, i):
            seen.append(i.tolist())
            return 0.5

        asked(th.Blockwise(kept_whole, 5, 0.0, 1.0, groups=indexes), preds, target, indexes)
        sizes = Counter(indexes.tolist())
        blocks = seen[-5:]
        assert sorted(i for block in blocks for i in block) == sorted(indexes.tolist())
        for block in blocks:
            assert all(count == sizes[query] for query, count in Counter(block).items())
        assert [len(set(block)) for block in blocks] == [6] * 5

    def test_a_metric_of_queries_without_groups_is_said_to_be_another_one(self):
        for metric in (RetrievalMAP(), torchmetrics.MetricCollection([RetrievalMAP()])):
            with pytest.warns(HoldoutWarning, match="groups=indexes"):
                th.Blockwise(metric, 5, 0.0, 1.0, select="RetrievalMAP")

    def test_twin_without_groups_cuts_queries_apart(self):
        preds, target, indexes = retrieval()
        seen = []
        statistic = th.Blockwise(lambda p, t, i: seen.append(i.tolist()) or 0.5, 5, 0.0, 1.0)
        asked(statistic, preds, target, indexes)
        sizes = Counter(indexes.tolist())
        assert any(n != sizes[q] for block in seen[-5:] for q, n in Counter(block).items())

    def test_mean_average_precision_by_blocks_is_nearly_that_of_all(self):
        """With as many queries in every block the mean over blocks is the mean over queries."""
        preds, target, indexes = retrieval()
        statistic = th.Blockwise(RetrievalMAP(), 5, 0.0, 1.0, groups=indexes)
        whole = float(RetrievalMAP()(preds, target, indexes))
        assert asked(statistic, preds, target, indexes) == pytest.approx(whole, abs=1e-4)

    def test_one_query_changes_one_block(self):
        preds, target, indexes = retrieval()
        statistic = th.Blockwise(RetrievalMAP(), 5, 0.0, 1.0, groups=indexes)
        base = asked(statistic, preds, target, indexes)
        for query in range(0, 30, 7):
            changed = torch.where(indexes == query, 1 - preds, preds)
            assert abs(asked(statistic, changed, target, indexes) - base) <= 1 / 5 + 1e-5

    def test_only_the_seed_decides_which_groups_are_together(self):
        _, _, indexes = retrieval()

        def cut(groups, seed):
            own = th.Blockwise(torch.mean, 5, 0.0, 1.0, seed=seed, groups=groups)
            return [block.tolist() for block in own._cut(len(indexes))]

        assert cut(indexes, 0) == cut([f"q{i}" for i in indexes.tolist()], 0)
        assert cut(indexes, 0) != cut(indexes, 1)

    def test_groups_and_size_must_fit(self):
        groups = [0, 0, 1, 1, 2, 2]
        with pytest.raises(InvalidArgumentError, match="at most 3 blocks, one group in each"):
            account(th.Blockwise(torch.mean, 4, 0.0, 1.0, groups=groups), 6)
        with pytest.raises(InvalidArgumentError, match="one id for each of the 7 rows"):
            account(th.Blockwise(torch.mean, 3, 0.0, 1.0, groups=groups), 7)


class TestRegistered:
    def test_groups_and_selection_are_part_of_the_identity(self):
        plain = th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0)
        grouped = th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0, groups=[0, 0, 1, 1, 2, 2])
        selected = th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0, select=1)
        assert "groups" not in plain.identity()
        assert "select" not in plain.identity()
        assert grouped.identity()["groups"]["count"] == 3
        assert selected.identity()["select"] == 1
        units = {"units": 3}
        cuts = {StoredStatistic(each.identity() | units).cut for each in (plain, grouped, selected)}
        assert len(cuts) == 2
        assert plain != grouped

    def test_the_code_of_a_selecting_function_names_the_query(self):
        one = th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0, select=lambda r: r)
        other = th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0, select=lambda r: 1 - r)
        assert one.source() != other.source()
        assert th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0).source() in one.source()

    def test_one_metric_of_a_collection(self):
        metrics = torchmetrics.MetricCollection({"f1": BinaryF1Score(), "p": BinaryPrecision()})
        statistic = th.Blockwise(metrics, 4, 0.0, 1.0, select="p")
        preds = torch.rand(40, generator=torch.Generator().manual_seed(0))
        target = (preds > 0.5).long()
        assert asked(statistic, preds, target) == 1.0

    @pytest.mark.parametrize("select", [1.5, ["map"], object()])
    def test_what_cannot_select_is_refused(self, select):
        with pytest.raises(InvalidArgumentError, match="`select`"):
            th.Blockwise(BinaryF1Score(), 3, 0.0, 1.0, select=select)

    def test_a_class_is_not_taken_for_a_function(self):
        with pytest.raises(InvalidArgumentError, match=r"the class BinaryF1Score; write Binary"):
            th.Blockwise(BinaryF1Score, 3, 0.0, 1.0)

    def test_a_pickle_of_before_has_neither(self):
        statistic = th.Blockwise(torch.mean, 3, 0.0, 1.0)
        state = {k: v for k, v in vars(statistic).items() if k not in ("groups", "select")}
        old = object.__new__(th.Blockwise)
        vars(old).update(state)
        again = pickle.loads(pickle.dumps(old))
        assert again == statistic
        assert again.identity() == statistic.identity()
