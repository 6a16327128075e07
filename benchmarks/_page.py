"""The documentation page: a function of the results and of nothing else."""

import math
from collections.abc import Iterator
from typing import Any

from _quality_page import quality_tables
from _results import BY_HAND, Row, is_worse, number, verdict
from _sweep_page import sweep_tables
from _ways_page import ways_tables
from torch_holdout._shared.text import counted

TITLES = {
    "validation_epoch": "A validation epoch",
    "host_reads": "Host reads per evaluation",
    "blockwise": "AUROC by blocks",
    "ledger": "The ledger",
    "status": "Long accounts",
    "report": "The report",
    "weights": "Fingerprint of the weights",
    "large": "Large holdouts and models",
    "service": "A board",
    "noise": "Noise",
    "accounting": "Privacy accounting",
    "certificates": "Certificates",
    "quality": "Quality of the chosen model",
    "sweeps": "Sweeps",
    "ensemble_training": "Training an ensemble",
    "aggregation": "Aggregating votes",
    "neighbour_votes": "Votes of nearest records",
    "private_prediction_ways": "Ways to private answers",
    "import_time": "Import and command",
}
ABOUT = {
    "validation_epoch": """`Trainer.validate` with a small network. The guarded epoch also evaluates
a tenth as many training examples, takes two fingerprints of the weights and writes one ledger
transaction. `self.log` does its bookkeeping for every batch, where the guard
only adds integers: the smaller the batches, the more that matters. Where the holdout is small
(5,000 examples are ten batches of 500), what an evaluation costs whatever its size stands out: the
transaction with its wait for the disk, and the fingerprints.""",
    "host_reads": """How often the host waits for the device in one evaluation, counted. The guard
and `self.log` read once, at the end; `MeanMetric` looks for NaN twice in every batch.""",
    "blockwise": """An evaluation of 100,000 examples, the forward pass included. Behind the door
there are one AUROC for each block and one ledger transaction instead of one AUROC. That is what
makes a metric that is not a mean answerable at all.""",
    "ledger": """Every charge is durable before it counts, on both sides. The ledger keeps queries,
answers and a hash chain, the JSON file a counter and the queries' names: where the file is faster,
that is why, and because a process that has its lock tends to keep it while the others sleep. A
counter in an Optuna study has no lock: it grants more than the budget. One evaluation asks
once for each statistic, so milliseconds are enough.""",
    "status": """`status()`, `certificate()` and `prices()` read sums, and a release reads what it
needs by an index, so a long account costs what a short one costs. Attaching replays what came after
the last mark; the first time after a crash it replays all. A row of the CSV has an interval of its
own, about a millisecond, however many there are. A charge is two fsyncs, one of the log and one of
the ledger.""",
    "report": """The page about a ledger, for people, and the CSV of its answers. Curves are
thinned, so a page grows slowly; the CSV has a line with a certified interval for each answer.""",
    "weights": """What the guard takes twice in an evaluation, against blake2b over the same bytes.
blake2b reads the weights alone; names, shapes, classes and settings are in our time, and they are
what is slow about many small tensors.""",
    "large": """Memory that a pass of ten million examples takes after its first tenth: a mean adds
up, blocks keep the rows once. A sealed run copies the weights in every evaluation, into the spare
of two buffers; a clone takes new memory each time.""",
    "service": """Submissions to a board on the loopback, against what a host would write instead: a
FastAPI app that keeps the file, computes the accuracy and appends a durable line to a log under a
file lock. It has no quota, no ledger and no certificate, and answers everything; that is why it is
faster. A team submits a few times an hour.""",
    "noise": """Our noise consists of integers made from the operating system's entropy, as
OpenDP's does. numpy's floats are much faster and what many people use, but they come from a
predictable generator, and their last bits give the value away. A Gaussian draw makes some thirty
candidates whichever of them is taken, so that its time tells nothing of it; OpenDP's ends with the
first. A release needs up to three draws, well under a millisecond.""",
    "accounting": """Epsilon of B releases of a sparse vector, each of its mechanisms costing a. The
closed form is the Thresholdout paper's. Ours and dp-accounting compose exactly, so they agree; the
more releases, the closer the times.""",
    "certificates": """How far any of B released values among m queries can be from the
population's, with 95 % confidence; smaller is better. Our certificates count transcripts: the
description length argument of Dwork et al. (2015), made tighter. For a curve they are a few percent
wider than that argument alone, because half of the failure probability pays for queries beyond the
plan, and the answers' noise is included. For early stopping a Ladder has fewer transcripts.
Theorems about privacy need much more noise, which counts against them.""",
    "quality": """The same training, stopped and chosen in five ways: by raw values (EarlyStopping
and ModelCheckpoint, patience 10), by the values of a live plan (200 queries, 20 releases, its own
patience), by a sealed run (patience 10), by a sealed run at epsilon 1 (patience 20), and by a
display of a fifth of the holdout (patience 20), with a silent rest whose best epoch is taken at
closing. *Regret* is the fresh value of the chosen model minus that of the best of all 200 epochs,
over the range of the statistic: 0 is the best that stopping could have done. *Width* is the
certified half-width over that of one query asked once of the whole holdout.

Raw values certify nothing. A live plan publishes improvements in steps, so it chooses a little
earlier. A display takes a fifth of the examples away and plans 20 runs, so it is wider than one
sealed run. At epsilon 1 the values stay hidden at closing as well: its width is what
`close(exact=True)` would certify, which ends the privacy.""",
    "sweeps": """The same Optuna studies of 20 trials over four hyperparameters, TPE without pruner
and ASHA on random points, told and won in several ways. *Raw values*: everything reads plain
accuracies of the holdout. *Live*: one question a trial through a Ladder for eight releases, after
a fit of fixed length. *Guesses pruned* is what live trials used to be: one that was not better by
a step ended without a value. *Display: 10 or 20 % of training*: a part of the training data tells
sampler, pruner and early stopping its loss, the whole holdout is sealed, and closing names the best
of all trials and epochs. *Refits*: before closing the display's 5 or 10 best trials are trained
again on all training data, sealed as well. *Display: 20 % of holdout*: a fifth of it is shown, the
rest is sealed.

A display costs training data, and a tenth of 300 to 4,000 examples is felt; refits give it back,
and enough of them give the holdout as many good models to choose from as the raw study has. The
settings (clean pictures, shares, number and length of refits) were chosen on seeds 0 to 7, where
five shorter refits were .0072 ± .0027 behind on MNIST with TPE (six seeds); the tables are of
seeds 8 to 15. A live claim is as wide as the releases that were spent: with few of them it may be
as narrow as a sealed one, and by computation it is two to three times as wide once all releases of
the plan are used.""",
    "ensemble_training": """All members in one stacked fit against one fit after the other; one
thread, CPU time. The step written by hand knows its network and is a little faster; ours takes any
module.""",
    "aggregation": """Fifty members, ten thousand queries, ten classes, one thread. OpenDP and the
loop take one query at a time. Turning scores into votes finds the largest of ten numbers, checks
that they are finite and counts, which takes longer than reading them once.""",
    "neighbour_votes": """Answers from the nearest of 50,000 records, charged to their account. The
peers have no noise, no account and no exact order: what one would write without privacy, and
scikit-learn's search. A sample of the records needs a longer list of the nearest, and coins.""",
    "private_prediction_ways": """How right private answers are at delta 1e-5, on fresh examples:
100 or 1,000 answers share the budget, or a student of labels, or a model trained by DP-SGD, answers
any number. Digits are seen as gradient histograms, a public function of a picture, but for one row.
The page about private prediction says which one to take when. Where public features are good,
DP-SGD's model is the best of those that answer without limit, and the library does not have it;
Opacus is left out where it is not installed.""",
    "import_time": """`import torch_holdout` loads nothing heavy; each name is imported when it is
first used. The command neither imports torch to show its help nor to plan.""",
}
WHY = {
    "validation_epoch": """an evaluation, however small, waits for the disk and looks at the weights
twice.""",
    "blockwise": """there is one AUROC for each block, and a transaction.""",
    "ledger": """a charge is a row with its query, answer and link, not a number in a file.""",
    "noise": """exact integers from the system's entropy, against floats of a predictable generator;
a Gaussian draw takes the same time whatever it gives.""",
    "accounting": """exact composition in plain Python, where the peer convolves with NumPy: it is
done once, when a plan is made.""",
    "certificates": """for a curve, half of the failure probability pays for queries beyond the
plan, and the answers' noise is included.""",
    "quality": """guarded values come in steps, so a run stops a little early or late; a display
takes examples away; noise hides which epoch is best.""",
    "sweeps": """a display costs training data, and a live trial sees no value before its end.""",
    "ensemble_training": """a step written for one network needs no care for others.""",
    "aggregation": """votes are checked, and noise is exact.""",
    "neighbour_votes": """a sample of the records needs a longer list of the nearest, and coins.""",
    "weights": """classes, settings and shapes are read too, which blake2b does not do.""",
    "service": """quotas, a ledger and certificates are what a board is for.""",
}
HEAD = """# Benchmarks

What the library costs, and what it saves, against what one would use instead. Times are
medians; ours and the peers take turns within one run, so a busy minute hits all of them alike.
Compare ratios, not seconds: seconds belong to the machine. The *ratio* is ours divided by theirs.
Where nobody would pick the peer instead (the import of torch, a forward pass), it gives the scale,
and the verdict says how large ours is in comparison.

`make bench` repeats it in {taken} and rewrites this page from `benchmarks/results.json`, but for
{by_hand},
which train for long: these are run by hand, and their last results stay until then
(`python benchmarks/run.py --only quality --into benchmarks/results.json`). Every row of the JSON
says when it was measured, and so does this page.

`python benchmarks/run.py --only ledger` runs one benchmark, `--quick` takes less time and is
noisier, `--show benchmarks/results.json` shows the last results again.
"""

BUSY = 1.5  # processes for each core


def page(results: dict[str, Any]) -> str:
    """Return the page for the results of a run."""
    facts = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    parts = [_head(results), f"Measured on {results['date']}; {facts}.\n"]
    for run in results["benchmarks"]:
        rows = [row for row in results["rows"] if row["benchmark"] == run["name"]]
        parts.append("\n".join(_section(run, rows, results)))
    parts.append("\n".join(_worse(results["rows"])))
    return "\n".join(parts)


def _head(results: dict[str, Any]) -> str:
    runs = [run for run in results["benchmarks"] if run["name"] not in BY_HAND]
    minutes = math.ceil(sum(run["seconds"] for run in runs) / 60)
    quick = any(run["quick"] for run in runs)
    taken = "less than a quarter of an hour" if quick else counted(minutes, "minute")
    names = [f"`{name}`" for name in BY_HAND]
    return HEAD.format(taken=taken, by_hand=f"{', '.join(names[:-1])} and {names[-1]}")


def _measured(run: dict[str, Any], results: dict[str, Any]) -> Iterator[str]:
    """Say what is not as at the top of the page: when it was measured, on what, and beside what."""
    facts = [f"{name} {value}" for name, value in run.get("machine", {}).items()]
    if run["measured"] != results["date"]:
        facts.insert(0, f"Measured on {run['measured']}")
    if facts:
        yield f"{'; '.join(facts)}.\n"
    if run["quick"]:
        yield "This was a quick run: few repetitions, noisy.\n"
    if run["load"] is not None and run["load"] > BUSY * int(results["machine"]["cores"]):
        yield f"{run['load']:g} processes shared the cores meanwhile: times are rough.\n"


def _section(run: dict[str, Any], rows: list[Row], results: dict[str, Any]) -> Iterator[str]:
    name = run["name"]
    yield f"## {TITLES.get(name, name)}\n"
    if name in ABOUT:
        yield f"{ABOUT[name]}\n"
    if run["failed"]:
        yield f"**Failed**: {run['failed']}.\n"
    yield from _measured(run, results)
    swept = [row for row in rows if "search" in row or "evaluations" in row]
    yield from sweep_tables(swept)
    rows = [row for row in rows if row not in swept]
    tabled = [row for row in rows if "task" in row or "way" in row]
    yield from quality_tables([row for row in tabled if "task" in row])
    yield from ways_tables(tabled)
    rows = [row for row in rows if row not in tabled]
    if rows:
        yield "| case | peer | ours | theirs | unit | ratio | verdict |"
        yield "|---|---|---:|---:|---|---:|---|"
        for row in rows:
            numbers = {key: number(row[key]) for key in ("ours", "theirs", "ratio")}
            cells = {**row, **numbers}
            shown = [cells[key] for key in ("case", "peer", "ours", "theirs", "unit", "ratio")]
            yield f"| {' | '.join(shown)} | {verdict(row)} |"
        yield ""


def _worse(rows: list[Row]) -> Iterator[str]:
    yield "## Where the alternative is better\n"
    worse = [row for row in rows if is_worse(row)]
    if not worse:
        yield "Nowhere in this run.\n"
        return
    for name in dict.fromkeys(row["benchmark"] for row in worse):
        reason = f": {WHY[name]}" if name in WHY else ""
        yield f"**{TITLES.get(name, name)}**{reason}\n"
        for row in worse:
            if row["benchmark"] == name:
                yield f"- {row['case']}: {verdict(row)} than {row['peer']}"
        yield ""
