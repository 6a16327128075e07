"""Nothing about the values of an open run leaves: no log, file, bar, repr or count of calls."""

import contextlib
import gc
import io
import logging
import os
import sys
from collections import Counter

import pytest
import torch
import torch_holdout as th

from support.builders.guarded import IN_A_TRAINER, NAMESPACES, package
from support.builders.sealed_guards import sealed_fit, small_account
from support.oracles.leaks import files_below, raw_hits, spy

pytestmark = IN_A_TRAINER
UP = [1.3137, 1.4271, 1.5393, 1.6517, 1.7639, 1.8753]
DOWN = UP[::-1]
PATIENT = {"stop": th.Patience("val_loss", patience=5)}
WAYS = {"stop": PATIENT, "silent": {"stop": None}, "files": PATIENT}


def guard_arguments(way, folder):
    return {**WAYS[way], **({"keep": folder / "kept"} if way == "files" else {})}


def watching(namespace, folder, trace):
    """A callback, placed last, that notes after each pass all that can be seen from outside."""

    class Watching(package(namespace).Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                trace.append(
                    {
                        "files": sorted(
                            (_plain(path, folder), path.stat().st_size, path.stat().st_mode)
                            for path in folder.rglob("*")
                            if path.is_file() and ".db" not in path.name
                        ),
                        "metrics": {k: float(v) for k, v in trainer.callback_metrics.items()},
                        "logged": {k: float(v) for k, v in trainer.logged_metrics.items()},
                        "bar": dict(trainer.progress_bar_metrics),
                        "stops": trainer.should_stop,
                    }
                )

    return Watching()


def _plain(path, folder):
    """The path, without the run's id, which is each account's own."""
    parts = path.relative_to(folder).parts
    return "/".join("run" if len(part) == 16 and part.isalnum() else part for part in parts)


def watched(namespace, folder, values, way, caplog):
    folder.mkdir()
    trace, written = [], io.StringIO()
    caplog.clear()
    saver = package(namespace).callbacks.ModelCheckpoint(
        folder / "checkpoints", save_top_k=-1, filename="{epoch}"
    )
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        sealed_fit(
            folder,
            values,
            namespace=namespace,
            account=small_account(f"sqlite:///{folder}/ledger.db"),
            guard=guard_arguments(way, folder),
            callbacks=[saver, watching(namespace, folder, trace)],
            enable_checkpointing=True,
            max_epochs=5,
        )
    return trace, written.getvalue(), [r.getMessage() for r in caplog.records]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("way", list(WAYS))
def test_mirrored_values_leave_the_same_trace(namespace, way, tmp_path, caplog):
    caplog.set_level(logging.INFO, "torch_holdout")
    up, said_up, logs_up = watched(namespace, tmp_path / "rise", UP, way, caplog)
    # Checkpoints hold their folder's path: names of other lengths would be files of other sizes.
    down, said_down, logs_down = watched(namespace, tmp_path / "fall", DOWN, way, caplog)
    assert len(up) == 5
    assert up == down
    assert said_up == said_down
    assert logs_up == logs_down
    if way == "files":
        assert len({row for found in up for row in found["files"] if "slot" in row[0]}) == 5


def test_a_guard_that_saves_only_what_is_better_is_caught(tmp_path, caplog, monkeypatch):
    """The broken twin: a file written when a pass is better is seen in the trace."""
    from torch_holdout.training.best_weights import Ring

    whole = Ring.judge

    def leaky(self, passed, run):
        if passed.better:
            whole(self, passed, run)

    monkeypatch.setattr(Ring, "judge", leaky)
    up, *_ = watched(NAMESPACES[0], tmp_path / "rise", UP, "files", caplog)
    down, *_ = watched(NAMESPACES[0], tmp_path / "fall", DOWN, "files", caplog)
    assert up != down


@pytest.mark.parametrize("way", ["stop", "files"])
def test_every_slot_is_rewritten_in_turn(way, tmp_path):
    """Times of files: each pass writes one file in memory mode none, in a ring exactly one."""
    changes = []

    class Times(package(NAMESPACES[0]).Callback):
        def __init__(self):
            self.before = {}

        def on_validation_end(self, trainer, pl_module):
            if trainer.sanity_checking:
                return
            now = {p.name: p.stat().st_mtime_ns for p in tmp_path.rglob("slot*")}
            changes.append(sorted(n for n in now if now[n] != self.before.get(n)))
            self.before = now

    values = [2.0, 3.0, 1.0, 3.0, 3.0, 3.0, 0.5, 3.0, 3.0, 3.0]
    sealed_fit(
        tmp_path, values, callbacks=[Times()],
        guard={**guard_arguments(way, tmp_path), "stop": th.Patience("val_loss", patience=4)},
    )  # fmt: skip
    expected = [[f"slot-{n % 5}.pt"] if way == "files" else [] for n in range(len(values))]
    assert changes == expected


def profiled(folder, values, way):
    """Count the calls of each pass: Python's and C's."""
    counts, seen = [], Counter()  # not in the callback: a look clears its attributes for a moment

    class Profiled(package(NAMESPACES[0]).Callback):
        def on_validation_start(self, trainer, pl_module):
            gc.collect()
            gc.disable()
            seen.clear()
            sys.setprofile(lambda frame, event, argument: seen.update([event]))

        def on_validation_end(self, trainer, pl_module):
            sys.setprofile(None)
            gc.enable()
            if not trainer.sanity_checking:
                counts.append(dict(seen))

    sealed_fit(
        folder, values, callbacks=[Profiled()], guard=guard_arguments(way, folder), max_epochs=5
    )
    return counts


def same_work(folder, way):
    """Whether rising and falling values take the same calls, in one of three tries.

    A busy machine adds a wait to a pass now and then; what depends on values differs every time.
    """
    profiled(folder / "first", UP, way)  # caches
    for number in range(3):
        up = profiled(folder / f"rise {number}", UP, way)
        down = profiled(folder / f"fall {number}", DOWN, way)
        assert len(up) == 5
        assert up[0]["call"] > 100
        if up == down:
            return True
    return False


@pytest.mark.parametrize("way", list(WAYS))
def test_calls_do_not_tell_which_pass_was_better(way, tmp_path):
    assert same_work(tmp_path, way)


def test_a_call_more_is_counted(tmp_path, monkeypatch):
    """The broken twin: one call more where a pass is better."""
    from torch_holdout.training.best_weights import TwoBuffers

    whole = TwoBuffers.judge

    def leaky(self, passed, run):
        whole(self, passed, run)
        if passed.better:
            len(run)

    monkeypatch.setattr(TwoBuffers, "judge", leaky)
    assert not same_work(tmp_path, "stop")


def raw():
    """The means, their sums and their levels."""
    means = [round(value / 5 * 65536) / 65536 * 5 for value in UP]
    return [*UP, *means, *(12 * value for value in UP), *(12 * value for value in means)]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("logger", ["CSVLogger", "TensorBoardLogger"])
def test_no_value_is_in_anything_that_left(namespace, way, logger, tmp_path, caplog, capfd):
    if logger == "TensorBoardLogger":
        pytest.importorskip("tensorboard")
    caplog.set_level(logging.DEBUG)
    pl, seen = package(namespace), []
    saver = pl.callbacks.ModelCheckpoint(tmp_path / "sinks", save_top_k=-1, save_last=True)
    guard, run, _, own = sealed_fit(
        tmp_path,
        [1.7639, 1.3137, 1.6517, 1.4271],
        namespace=namespace,
        callbacks=[spy(pl, seen), saver],
        guard=guard_arguments(way, tmp_path),
        logger=getattr(pl.loggers, logger)(tmp_path / "sinks"),
        enable_checkpointing=True,
        enable_progress_bar=True,
        log_every_n_steps=1,
    )
    printed = capfd.readouterr()
    course = guard._course
    shown = [repr(each) for each in (guard, course, *vars(guard).values(), *vars(course).values())]
    seen += [printed.out, printed.err, caplog.text, shown, repr(guard.outcome), own.status()]
    seen += [str(own.status()), repr(own), guard.state_dict(), files_below(tmp_path / "sinks")]
    seen += [dict(run.callback_metrics), dict(run.logged_metrics), dict(run.progress_bar_metrics)]
    assert raw_hits(seen, raw()) == []
    assert "sealed" in printed.out + printed.err
    # The harness finds what closing shows.
    assert raw_hits([value.value for value in own.close().values], raw())


@pytest.mark.parametrize("way", list(WAYS))
def test_no_value_is_in_an_error(way, tmp_path):
    """What fails after a pass carries neither a value nor whether the pass was better."""

    class Failing(package(NAMESPACES[0]).Callback):
        def on_validation_end(self, trainer, pl_module):
            if trainer.current_epoch == 2:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as found:
        sealed_fit(tmp_path, UP, callbacks=[Failing()], guard=guard_arguments(way, tmp_path))
    frames, trace = [], found.value.__traceback__
    while trace is not None:
        frames += [repr(value) for value in trace.tb_frame.f_locals.values()]
        trace = trace.tb_next
    own = [text for text in frames if "UP" not in text and str(UP) not in text]
    assert raw_hits([text for text in own if not text.startswith("[1.3137")], raw()) == []
    assert not [text for text in own if "better=" in text]


def test_a_full_disk_says_nothing_of_the_pass(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(th.HoldoutError, match="could not be written"):
        sealed_fit(tmp_path, UP, guard=guard_arguments("files", tmp_path))
    with pytest.warns(th.HoldoutWarning, match="could not be written"):
        guard, _, module, _ = sealed_fit(tmp_path / "other", UP, guard=PATIENT)
    assert guard.best_model_path is None
    assert int(module.steps) == 1  # put back all the same


def test_files_are_their_owners_whatever_the_umask(tmp_path):
    before = os.umask(0)
    modes = set()

    class Modes(package(NAMESPACES[0]).Callback):
        def on_validation_end(self, trainer, pl_module):
            modes.update(oct(p.stat().st_mode & 0o777) for p in tmp_path.rglob("*.p*t"))

    try:
        guard, *_ = sealed_fit(
            tmp_path, UP, callbacks=[Modes()], guard=guard_arguments("files", tmp_path)
        )
    finally:
        os.umask(before)
    modes.add(oct(os.stat(guard.best_model_path).st_mode & 0o777))
    assert modes == {"0o600"}
