"""The guard on a board over HTTP, in one process: the validation set has no labels."""

import json
import threading

import pytest
import torch
import torch_holdout as th
from torch.nn import functional
from torch_holdout.errors import (
    BoardUnreachableError,
    BudgetExhaustedError,
    HoldoutClosedError,
    HoldoutWarning,
    InvalidArgumentError,
    PartialPassError,
)

from support.builders.guarded import IN_A_TRAINER, NAMESPACES, guard_class, package, trainer
from support.builders.unlabelled import (
    CLASSES,
    SIZE,
    inputs,
    labelled,
    labels,
    predicting,
    unlabelled,
)
from support.machines.board_stand_in import standing_in

pytestmark = [*IN_A_TRAINER, pytest.mark.usefixtures("token")]


@pytest.fixture(autouse=True)
def same_weights():
    torch.manual_seed(0)


@pytest.fixture
def board():
    with standing_in(labels(inputs()), classes=CLASSES) as stand_in:
        yield stand_in


def guarded(board, namespace="lightning.pytorch", **options):
    return guard_class(namespace)(th.remote(board.url, wait=30).holdout(), **options)


def watching(namespace="lightning.pytorch"):
    """A callback that keeps what callbacks are shown after each validation."""

    class Spy(package(namespace).Callback):
        def __init__(self):
            self.seen = []

        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                self.seen.append({k: float(v) for k, v in trainer.callback_metrics.items()})

    return Spy()


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_fit_stops_by_the_boards_answers(board, namespace):
    board.releases, board.step = 30, 0.1  # at most 7 releases: it stops after 41 passes at most
    spy = watching(namespace)
    stopping = package(namespace).callbacks.EarlyStopping("accuracy", mode="max", patience=5)
    guard = guarded(board, namespace)
    run = trainer([guard, stopping, spy], namespace=namespace, max_epochs=60)
    run.fit(predicting(namespace), labelled(), unlabelled())
    assert 6 <= len(spy.seen) <= 41
    assert stopping.wait_count == 5
    # One PUT for each pass that made new predictions, of a byte for each row.
    assert board.count("PUT") == len(board.answers)
    assert {length for length, _ in board.bodies} == {128 + SIZE}
    told = [each["results"]["accuracy"]["value"] for each in board.answers.values()]
    shown = [each["accuracy"] for each in spy.seen]
    expected = {0.3 if value is None else value for value in told}
    assert sorted(set(shown)) == pytest.approx(sorted(expected))
    assert shown[-1] == stopping.best_score
    releases = sum(each["kind"] == "release" for each in board.answers.values())
    assert spy.seen[-1]["holdout/releases"] == releases
    assert spy.seen[-1]["holdout/budget_left"] == 30 - releases


def test_the_sanity_check_sends_nothing(board):
    seen = []

    class Spy(package("lightning.pytorch").Callback):
        def on_sanity_check_end(self, trainer, pl_module):
            seen.append(board.count("PUT"))

    run = trainer([guarded(board), Spy()], max_epochs=1, num_sanity_val_steps=-1)
    run.fit(predicting(), labelled(), unlabelled())
    assert seen == [0]
    assert board.count("PUT") == 1


def test_making_a_guard_asks_for_public_facts_alone(board):
    guarded(board)
    assert {method for method, _, _ in board.requests} == {"GET"}
    assert not any("submissions" in path for _, path, _ in board.requests)


def test_below_the_baseline_the_baseline_is_published_as_a_guess(board):
    board.baseline = 0.99
    spy, guard = watching(), guarded(board)
    trainer([guard, spy], max_epochs=2).fit(predicting(), labelled(), unlabelled())
    assert [each["accuracy"] for each in spy.seen] == pytest.approx([0.99, 0.99])
    assert [each["holdout/accuracy/is_release"] for each in spy.seen] == [0, 0]
    assert guard.answers["accuracy"].kind == "guess"


def test_a_second_statistic_without_a_value_is_its_worse_bound(board):
    board.second = True
    spy = watching()
    trainer([guarded(board), spy], max_epochs=1).fit(predicting(), labelled(), unlabelled())
    assert spy.seen[0]["loss"] == 5.0
    assert spy.seen[0]["holdout/loss/is_release"] == 0


def test_probabilities_are_the_softmax_of_scores():
    with standing_in(labels(inputs()), classes=CLASSES, upload="probabilities") as board:
        net = predicting()
        trainer([guarded(board)], max_epochs=1).fit(net, labelled(), unlabelled())
        net.eval()
        with torch.no_grad():
            rows = net(inputs()).softmax(1)
        again = th.remote(board.url).submit(rows)
        assert len(board.answers) == 1 or again.value is not None
        assert board.bodies[0][0] == 128 + 4 * CLASSES * SIZE


def test_probabilities_are_taken_as_they_are():
    def validation_step(self, batch, batch_idx):
        return {"accuracy": self(batch[0]).softmax(1)}

    with standing_in(labels(inputs()), classes=CLASSES, upload="probabilities") as board:
        scores, rows = predicting(), predicting(validation_step=validation_step)
        rows.load_state_dict(scores.state_dict())
        for net in (scores, rows):
            trainer([guarded(board)]).validate(net, unlabelled(batch_size=SIZE), verbose=False)
        assert len(board.answers) == 1  # the second was known


def test_scores_for_a_regression():
    def validation_step(self, batch, batch_idx):
        return {"error": self(batch[0])[:, :1]}

    def training_step(self, batch, batch_idx):
        return functional.mse_loss(self(batch[0])[:, 0], batch[1].float())

    with standing_in(
        labels(inputs()).float(), classes=None, upload="scores", baseline=4.0
    ) as board:
        spy = watching()
        net = predicting(validation_step=validation_step, training_step=training_step)
        trainer([guarded(board), spy], max_epochs=3).fit(net, labelled(), unlabelled())
        assert spy.seen[-1]["error"] == pytest.approx(board.best)
        assert spy.seen[-1]["error"] < 4


class TestExhaustion:
    @pytest.fixture(autouse=True)
    def few_releases(self, board):
        board.releases, board.step, board.baseline = 2, 0.0, 0.0

    def run(self, board, policy, epochs=8):
        spy = watching()
        run = trainer([guarded(board, on_exhausted=policy), spy], max_epochs=epochs)
        run.fit(predicting(), labelled(), unlabelled())
        return run, spy.seen

    def test_stop(self, board, caplog):
        run, seen = self.run(board, "stop", epochs=60)
        assert run.should_stop
        assert seen[-1]["holdout/exhausted"] == 1
        assert "no releases left" in caplog.text

    def test_freeze(self, board):
        with pytest.warns(HoldoutWarning, match="stale"):
            _, seen = self.run(board, "freeze", epochs=25)
        assert len(seen) == 25
        assert seen[-1]["holdout/accuracy/is_stale"] == 1
        assert seen[-1]["accuracy"] == pytest.approx(board.best)

    def test_raise(self, board):
        with pytest.raises(BudgetExhaustedError, match="got no answer"):
            self.run(board, "raise", epochs=60)

    def test_a_new_fit_is_refused_before_it_trains(self, board):
        self.run(board, "stop", epochs=60)
        asked = board.count("PUT")
        with pytest.raises(BudgetExhaustedError, match="releases left for a new fit"):
            self.run(board, "stop")
        assert board.count("PUT") == asked

    def test_submissions_that_run_out_are_exhaustion_too(self, board):
        board.releases, board.submissions, board.baseline = 50, 2, 0.99
        run, seen = self.run(board, "stop", epochs=10)
        assert len(board.answers) == 2
        assert len(seen) < 10
        assert run.should_stop

    def test_few_submissions_are_said_before(self, board, caplog):
        board.releases, board.submissions = 50, 3
        self.run(board, "stop", epochs=6)
        assert "takes 3 submissions more from this team, but this fit plans 6" in caplog.text


class TestRefusals:
    @pytest.mark.parametrize(
        ("mode", "line"),
        [("gate", ").submit(predictions)  # answer.better"), ("sealed", "final=True")],
    )
    def test_a_board_without_values_is_refused_in_setup_with_the_line_to_write(
        self, board, mode, line
    ):
        board.mode = mode
        guard = guarded(board)
        trained = []

        def training_step(self, batch, batch_idx):
            trained.append(1)

        for act in ("fit", "validate"):
            run, net = trainer([guard], max_epochs=1), predicting(training_step=training_step)
            with pytest.raises(InvalidArgumentError) as refused:
                run.fit(net, labelled(), unlabelled()) if act == "fit" else run.validate(
                    net, unlabelled()
                )
            assert line in str(refused.value)
            assert board.url in str(refused.value)
        assert trained == []
        assert board.count("PUT") == 0

    def test_a_closed_board_is_refused_in_setup(self, board):
        board.state = "closed"
        with pytest.raises(HoldoutClosedError, match="has closed"):
            trainer([guarded(board)]).fit(predicting(), labelled(), unlabelled())

    def test_a_partial_pass_is_refused_here(self, board):
        run = trainer([guarded(board)], limit_val_batches=2)
        with pytest.raises(InvalidArgumentError, match="limit_val_batches"):
            run.fit(predicting(), labelled(), unlabelled())
        with pytest.raises(PartialPassError, match="leaves out the last 1"):
            trainer([guarded(board)]).fit(
                predicting(), labelled(), unlabelled(batch_size=16, drop_last=True)
            )
        assert board.count("PUT") == 0

    def test_a_set_of_another_size_is_refused_here(self, board):
        with pytest.raises(PartialPassError, match="all 97"):
            trainer([guarded(board)]).fit(predicting(), labelled(), unlabelled(size=90))
        assert board.count("PUT") == 0

    def test_a_shuffled_set_is_refused(self, board):
        with pytest.raises(InvalidArgumentError, match="told apart by their places"):
            trainer([guarded(board)]).fit(predicting(), labelled(), unlabelled(shuffle=True))

    def test_labels_in_the_step_are_refused(self, board):
        def validation_step(self, batch, batch_idx):
            scores = self(batch[0])
            return {"accuracy": (scores, torch.zeros(len(scores)))}

        with pytest.raises(InvalidArgumentError, match="the board has the labels"):
            trainer([guarded(board)]).fit(
                predicting(validation_step=validation_step), labelled(), unlabelled()
            )

    def test_scores_of_other_classes_are_refused(self, board):
        def validation_step(self, batch, batch_idx):
            return {"accuracy": self(batch[0])[:, :2]}

        with pytest.raises(InvalidArgumentError, match=r"scores \[B, 3\]"):
            trainer([guarded(board)]).fit(
                predicting(validation_step=validation_step), labelled(), unlabelled()
            )

    def test_weights_that_change_in_the_pass_are_refused(self, board):
        def validation_step(self, batch, batch_idx):
            with torch.no_grad():
                self.layers[0].weight.add_(0.1)
            return {"accuracy": self(batch[0])}

        with pytest.raises(th.WeightsChangedError, match="throughout the pass"):
            trainer([guarded(board)]).fit(
                predicting(validation_step=validation_step), labelled(), unlabelled()
            )
        assert board.count("PUT") == 0

    def test_unguarded_logs_are_refused_as_ever(self, board):
        def validation_step(self, batch, batch_idx):
            scores = self(batch[0])
            self.log("confidence", scores.max())
            return {"accuracy": scores}

        with pytest.raises(th.UnguardedLogError, match="confidence"):
            trainer([guarded(board)]).fit(
                predicting(validation_step=validation_step), labelled(), unlabelled()
            )

    def test_no_token_is_said_in_setup(self, board, monkeypatch):
        monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
        with pytest.raises(th.HoldoutError, match="TORCH_HOLDOUT_TOKEN"):
            trainer([guarded(board)]).fit(predicting(), labelled(), unlabelled())


class TestResuming:
    def test_a_resumed_run_repeats_for_free_and_goes_on(self, board, tmp_path):
        checkpoint = package("lightning.pytorch").callbacks.ModelCheckpoint(
            tmp_path, filename="{epoch}", save_top_k=-1
        )
        net = predicting()
        run = trainer([guarded(board), checkpoint], max_epochs=2, enable_checkpointing=True)
        run.fit(net, labelled(), unlabelled())
        answers = len(board.answers)
        place = tmp_path / "epoch=1.ckpt"
        assert b"th_abcdefgh" not in place.read_bytes()
        spy = watching()
        run = trainer([guarded(board), spy], max_epochs=4)
        run.fit(predicting(), labelled(), unlabelled(), ckpt_path=place)
        assert len(spy.seen) == 2
        trainer([guarded(board)]).validate(
            predicting(), unlabelled(), ckpt_path=place, verbose=False
        )
        # The weights of the checkpoint were known: the board was sent a hash and no rows.
        known = [path for method, path, status in board.requests if method == "GET"]
        assert sum("submissions" in path for path in known) >= answers + 3
        assert len(board.answers) <= answers + 2

    def test_the_same_weights_again_are_one_submission(self, board):
        net = predicting()
        for _ in range(3):
            trainer([guarded(board)]).validate(net, unlabelled(), verbose=False)
        assert len(board.answers) == 1
        assert board.count("PUT") == 1


class TestWhileTheBoardIsAway:
    def test_a_fit_goes_on_when_the_board_is_back(self, board):
        """Stopped in the middle of a fit, for a second; what had been answered stays so."""
        spy, back = watching(), []

        class Away(package("lightning.pytorch").Callback):
            def on_validation_start(self, trainer, pl_module):
                if trainer.current_epoch == 2 and not back:
                    board.stop()
                    back.append(threading.Timer(1.0, board.start))
                    back[0].start()

        run = trainer([guarded(board), Away(), spy], max_epochs=5)
        run.fit(predicting(), labelled(), unlabelled())
        back[0].join()
        assert len(spy.seen) == 5
        assert run.current_epoch == 5

    def test_a_lost_answer_is_charged_once(self, board):
        board.failures.append("late")
        board.only = "PUT"
        spy = watching()
        trainer([guarded(board), spy], max_epochs=1).fit(predicting(), labelled(), unlabelled())
        assert len(board.answers) == 1
        assert board.count("PUT") == 2
        (answer,) = board.answers.values()
        assert spy.seen[0]["holdout/accuracy/is_release"] == (answer["kind"] == "release")

    def test_one_that_stays_away_ends_the_fit_with_a_word(self, board):
        guard = guard_class("lightning.pytorch")(th.remote(board.url, wait=0).holdout())
        board.only = "PUT"
        board.failures.extend([503] * 10)
        with pytest.raises(BoardUnreachableError, match="can be repeated"):
            trainer([guard]).fit(predicting(), labelled(), unlabelled())


def test_nothing_of_the_token_is_in_logs_and_checkpoints(board, tmp_path):
    logger = package("lightning.pytorch").loggers.CSVLogger(tmp_path)
    run = trainer([guarded(board)], max_epochs=1, logger=logger, enable_checkpointing=True)
    run.fit(predicting(), labelled(), unlabelled())
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"accuracy" in content
    assert b"th_abcdefgh" not in content
    assert json.dumps(str(run.callbacks)).count("th_abcdefgh") == 0
