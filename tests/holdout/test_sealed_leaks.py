"""No value of an open run leaves: by a text, an object, a log, a frame, a size or a statement."""

import hashlib
import io
import logging
import math
import pickle
import sqlite3
from contextlib import closing
from dataclasses import asdict
from functools import partial

import pytest
import torch
import torch_holdout as th
from torch_holdout.holdout import challenges
from torch_holdout.holdout.passes import OpenedRun
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.ledger.verify import verify
from torch_holdout.report import content, page, rows, summarise

from support.builders.sealed_logs import events_of
from support.oracles.leaks import raw_hits
from support.oracles.work import taken_along, watched_work

SIZE, LEVELS = 97, 65536
STATISTICS = {
    "mean": th.BoundedMean(0.0, 1.0),
    "ratio": th.Ratio(th.BoundedMean(0.0, 1.0), th.BoundedMean(0.0, 1.0), 0.0, 1.0),
}
of_each = pytest.mark.parametrize("kind", STATISTICS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdout.db"


def account(path, *, runs=1, kind="mean", **sealed):
    return th.ReusableHoldout(
        f"sqlite:///{path}", name="val", size=SIZE,
        statistics={"err": STATISTICS[kind]},
        mechanism=th.Sealed(evaluations=20, **sealed), budget=runs,
    )  # fmt: skip


def values_of(epoch):
    """Per-example values whose sums are found by chance nowhere else."""
    noise = torch.rand(SIZE, generator=torch.Generator().manual_seed(epoch + 100))
    return (0.3 + 0.6 * noise).double()


def raw_of(epoch):
    """The raw numbers of an epoch: mean, sum of levels, sum of squares."""
    levels = (values_of(epoch) * LEVELS).round().long()
    total, squares = int(levels.sum()), int((levels * levels).sum())
    return [total / (SIZE * LEVELS), total, squares, total / SIZE]


def raw_quotients(epoch):
    """Those of an epoch of a ratio: of both parts, their quotient, and its levels."""
    columns = [values * LEVELS for values in columns_of("ratio", epoch)]
    totals = [int(column.round().sum()) for column in columns]
    squares = [int(column.round().long().square().sum()) for column in columns]
    quotient = totals[0] / totals[1]
    means = [total / (SIZE * LEVELS) for total in totals]
    return [*totals, *squares, *means, quotient, round(quotient * SIZE * LEVELS)]


def columns_of(kind, epoch):
    """What is passed to ``update``."""
    if kind == "mean":
        return (values_of(epoch),)
    return values_of(epoch) * values_of(epoch + 50), values_of(epoch + 50)


RAW = [number for epoch in range(4) for number in raw_of(epoch)]
RAWS = {"mean": RAW, "ratio": [n for epoch in range(4) for n in raw_quotients(epoch)]}


def evaluate(holdout, run, epoch, plain=None, **more):
    """Evaluate sums; or values in a plain array, made by ``plain``."""
    kind = "ratio" if isinstance(holdout.statistics["err"], th.Ratio) else "mean"
    columns = columns_of(kind, epoch)
    if plain is None:
        sums = holdout.accumulator("err")
        sums.update(*columns)
    else:
        sums = plain(*columns)
    return run.evaluate({"err": sums}, query=f"weights {epoch}", **more)


class Telling:
    """An array that is read once, and whose text and errors quote its values."""

    def __init__(self, values):
        self.values = values

    def __array__(self):
        values, self.values = self.values, None
        if values is None:
            raise RuntimeError(str(RAW))
        return values.numpy()

    def __repr__(self):
        return str(RAW)


def as_arrays(above, below):
    """Both parts of a ratio."""
    return above.numpy(), below.numpy()


ways = pytest.mark.parametrize(
    ("kind", "plain"),
    [
        ("mean", None),
        ("mean", torch.Tensor.numpy),
        ("mean", torch.Tensor.tolist),
        ("mean", Telling),
        ("ratio", None),
        ("ratio", as_arrays),
    ],
)


def everything(thing, depth=6):
    """What can be reached from an object by attributes and containers, and its text."""
    found, seen, todo = [], set(), [(thing, depth)]
    while todo:
        one, left = todo.pop()
        if id(one) in seen or left < 0:
            continue
        seen.add(id(one))
        found.append(repr(one))
        if isinstance(one, dict):
            todo += [(part, left - 1) for pair in one.items() for part in pair]
        elif isinstance(one, list | tuple | set | frozenset):
            todo += [(part, left - 1) for part in one]
        elif type(one).__module__.startswith("torch_holdout"):
            todo += [(part, left - 1) for part in getattr(one, "__dict__", {}).values()]
    return found


@pytest.fixture
def logged():
    """All log records of a block, at the lowest level, of every logger there is."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root, known = logging.getLogger(), dict(logging.root.manager.loggerDict)
    names = [name for name, one in known.items() if isinstance(one, logging.Logger)]
    before = {name: logging.getLogger(name).level for name in [*names, "sqlalchemy.engine"]}
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "torch_holdout"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)
    for name, old in before.items():
        logging.getLogger(name).setLevel(old)


@ways
def test_nothing_raw_is_in_what_an_open_run_gives(path, logged, capfd, monkeypatch, kind, plain):
    inside = []
    take = OpenedRun.take

    def looked_at(self, sums, *arguments, **more):
        passed = take(self, sums, *arguments, **more)
        inside.extend([repr(self), repr(sums), repr(passed), repr(self.run), repr(self.runs)])
        return passed

    monkeypatch.setattr(OpenedRun, "take", looked_at)
    holdout = account(path, kind=kind)
    run = holdout.run(stop=th.Patience("err", 10))
    given = [evaluate(holdout, run, epoch, plain) for epoch in range(4)]
    with pytest.raises(th.SealedValueError):
        pickle.dumps(run)
    ledger = Ledger(f"sqlite:///{path}")
    report = summarise(ledger)
    seen = {
        "run": everything(run),
        "given": [repr(given), [asdict(each) for each in given], pickle.dumps(given)],
        "status": [str(holdout.status()), asdict(holdout.status())],
        "certificate": [str(holdout.certificate()), asdict(holdout.certificate())],
        "prices": everything(holdout.prices()) if hasattr(holdout, "prices") else [],
        "pickle": pickle.dumps(holdout),
        "report": [*everything(report, depth=9), page(report), content(report), *rows(ledger)],
        "verify": everything(verify(f"sqlite:///{path}")),
        "inside": inside,
        "logs": logged.getvalue(),
        "printed": list(capfd.readouterr()),
    }
    assert len(inside) == 20
    assert not {name for name, each in seen.items() if raw_hits(each, RAWS[kind])}
    assert run.outcome is None


@of_each
def test_the_same_search_finds_the_raw_values_where_they_are(path, kind):
    """The twin: the secret table, and the curve after closing."""
    holdout = account(path, kind=kind)
    with holdout.run() as run:
        evaluate(holdout, run, 0)
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT total, squares FROM th_secret_sums").fetchall()
    assert len(kept) == (1 if kind == "mean" else 3)
    assert all(raw_hits(list(row), RAWS[kind]) for row in kept)
    assert raw_hits(everything(holdout.close()), RAWS[kind])


@ways
@pytest.mark.parametrize("method", ["keep_sums", "update", "keep_secret"])
def test_an_error_inside_the_transaction_takes_nothing_along(
    path, monkeypatch, method, kind, plain
):
    holdout = account(path, kind=kind)
    run = holdout.run(stop=th.Patience("err", 10))
    evaluate(holdout, run, 0)

    def broken(self, *arguments, **more):
        raise RuntimeError(f"{arguments} {more} {RAWS[kind]}")

    monkeypatch.setattr(SealedRuns, method, broken)
    with pytest.raises(th.HoldoutError) as caught:
        evaluate(holdout, run, 1, plain)
    assert raw_hits(taken_along(caught.value), RAWS[kind]) == []
    monkeypatch.undo()
    assert evaluate(holdout, run, 1).passes == 2  # nothing of the failed one was kept


def watched(path, course, kind):
    """For each pass of a course: its statements, and how much was written."""
    holdout = account(path, kind=kind)
    holdout.status()
    run = holdout.run(stop=th.Patience("err", 8))

    def evaluated(epoch, errors):
        sums = holdout.accumulator("err")
        wrong = (torch.arange(SIZE) < errors).float()
        sums.update(*((wrong,) if kind == "mean" else (wrong, torch.ones(SIZE))))
        run.evaluate({"err": sums}, query=f"weights {epoch}")

    with watched_work(holdout, path) as work:
        return [work(partial(evaluated, *pair)) for pair in enumerate(course)]


@of_each
def test_better_and_worse_passes_do_the_same_work(tmp_path, kind):
    """Two courses that mirror each other: what is better in one is worse in the other."""
    course = [50, 40, 45, 35, 44, 60, 34, 33]
    falling = watched(tmp_path / "one.db", course, kind)
    rising = watched(tmp_path / "other.db", [97 - errors for errors in course], kind)
    assert [len(statements) for statements, _ in falling][1:] == [len(falling[1][0])] * 7
    assert falling == rising
    assert all(written > 0 for _, written in falling)


def bytes_below(path):
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()) if file.is_file())


def reference_in(path):
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT state FROM th_secret_runs").fetchone()
    return None if row is None else row[0].strip().encode()


def test_the_reference_of_an_ended_run_is_not_left_in_the_file(path):
    holdout = account(path)
    with holdout.run(stop=th.Patience("err", 10)) as run:
        for epoch in range(3):
            evaluate(holdout, run, epoch)
        kept = reference_in(path)
        assert kept in bytes_below(path)
    assert reference_in(path) is None
    assert kept not in bytes_below(path)
    total = str(raw_of(2)[1]).encode()  # the lowest of the three
    assert total in kept
    assert total not in bytes_below(path)


def test_sums_are_gone_from_the_file_when_a_private_account_is_closed(path):
    holdout = account(path, epsilon=1.0)
    with holdout.run(stop=th.Patience("err", 10)) as run:
        for epoch in range(3):
            evaluate(holdout, run, epoch)
    squares = [str(raw_of(epoch)[2]).encode() for epoch in range(3)]
    assert all(each in bytes_below(path) for each in squares)
    assert holdout.close().values == ()
    assert not any(each in bytes_below(path) for each in squares)


def test_sums_are_gone_from_the_file_when_a_run_is_given_up_for_free(path):
    holdout = account(path)
    run = holdout.run(stop=th.Patience("err", 10))
    evaluate(holdout, run, 0)
    squares = str(raw_of(0)[2]).encode()
    assert squares in bytes_below(path)
    run.give_up()
    assert squares not in bytes_below(path)


def challenged(holdout, epoch, **more):
    return holdout.challenge("err", values_of(epoch), query=f"weights {epoch}", **more)


def test_nothing_raw_is_in_what_a_challenge_gives(path, logged, capfd, monkeypatch):
    inside = []
    paired = challenges.Contest.paired

    def looked_at(self, *levels):
        found = paired(self, *levels)
        inside.extend([repr(self), repr(found), f"{found}"])
        return found

    monkeypatch.setattr(challenges.Contest, "paired", looked_at)
    holdout = account(path, runs=8)
    given = [challenged(holdout, epoch, rule="margin") for epoch in range(4)]
    differences = [
        int(((values_of(a) * LEVELS).round() - (values_of(b) * LEVELS).round()).sum())
        for a in range(4) for b in range(4) if a != b
    ]  # fmt: skip
    ledger = Ledger(f"sqlite:///{path}")
    report = summarise(ledger)
    seen = {
        "given": [repr(given), *map(str, given), [asdict(g) for g in given], pickle.dumps(given)],
        "status": [str(holdout.status()), asdict(holdout.status())],
        "certificate": [str(holdout.certificate()), asdict(holdout.certificate())],
        "pickle": pickle.dumps(holdout),
        "report": [*everything(report, depth=9), page(report), content(report), *rows(ledger)],
        "verify": everything(verify(f"sqlite:///{path}")),
        "events": [str(event) for event in events_of(holdout)],
        "inside": inside,
        "logs": logged.getvalue(),
        "printed": list(capfd.readouterr()),
    }
    assert len(inside) == 9
    assert not {name for name, each in seen.items() if raw_hits(each, RAW + differences)}


def test_a_ledger_has_no_levels_and_no_digest_of_them(path):
    """Levels of zeros and ones are guessed by trying: a digest without a key would be an answer."""
    holdout = account(path, runs=4)
    challenged(holdout, 0)
    (file,) = path.parent.glob("holdout.db.challenges/*/*.levels")
    levels = (values_of(0) * LEVELS).round().long()
    kept = file.read_bytes()
    guesses = [levels.to(kind).numpy().tobytes() for kind in (torch.int32, torch.int64)]
    assert guesses[0] in kept  # the search finds them where they are
    stored = bytes_below(path)
    for guess in [*guesses, kept]:
        digest = hashlib.sha256(guess)
        assert guess[:64] not in stored
        assert digest.digest() not in stored
        assert digest.hexdigest().encode() not in stored
    assert kept[:32] not in stored
    assert kept[:32] not in [hashlib.sha256(guess).digest() for guess in guesses]


@pytest.mark.parametrize("place", [(SealedRuns, "say"), (challenges.Contest, "paired")])
def test_an_error_inside_a_challenge_takes_nothing_along(path, monkeypatch, place):
    holdout = account(path, runs=4)
    challenged(holdout, 0)
    first = [float(values_of(1)[k]) for k in range(5)]

    def broken(self, *arguments, **more):
        raise RuntimeError(f"{arguments} {more} {RAW}")

    monkeypatch.setattr(*place, broken)
    with pytest.raises(th.HoldoutError) as caught:
        challenged(holdout, 1)
    assert raw_hits(taken_along(caught.value), RAW + first) == []
    monkeypatch.undo()
    assert holdout.budget_left == 3  # nothing of the failed one was kept
    assert challenged(holdout, 1).number == 2


def watched_challenges(path, wrong):
    """What challenges said; for each its statements, how much was written, and how many files."""
    holdout = account(path, runs=len(wrong))
    holdout.status()
    told, found = [], []

    def challenge(number, count):
        errors = (torch.arange(SIZE) < count).float()
        told.append(holdout.challenge("err", errors, query=f"{number}", rule="margin").kept)

    with watched_work(holdout, path) as work:
        for pair in enumerate(wrong):
            did = work(partial(challenge, *pair))
            found.append((*did, len(list(path.parent.glob(f"{path.name}.challenges/*/*")))))
    return told, found


def test_kept_and_reverted_challengers_do_the_same_work(tmp_path):
    course = [50, 40, 30, 20, 10]
    kept, falling = watched_challenges(tmp_path / "one.db", course)
    reverted, rising = watched_challenges(tmp_path / "other.db", [97 - wrong for wrong in course])
    assert (kept[1:], reverted[1:]) == ([True] * 4, [False] * 4)
    assert falling == rising
    assert all(written > 0 and left == 1 for _, written, left in falling)


def test_no_error_of_a_challenge_depends_on_a_value(path):
    """Values that an analyst makes from what is right: the same answer or refusal for all."""
    holdout = account(path, runs=20)
    challenged(holdout, 0)
    right = values_of(0) > 0.5
    for number, odd in enumerate((math.nan, math.inf, -math.inf, 1e30, -7.0)):
        told = holdout.challenge("err", torch.where(right, odd, 0.9), query=f"{number}")
        assert told.kept is False
