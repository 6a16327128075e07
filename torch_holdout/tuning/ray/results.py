"""Ray Tune's results: which trial made which sealed run, where weights are, and the closed grid.

A trial's table has a row for each report. On a sealed account a row says which evaluation of which
run it goes with, and the checkpoint of that report is stamped with the same two.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import pandas as pd
import pyarrow.fs
from ray import tune
from ray.train._internal.session import _TrainingResult
from ray.tune import ResultGrid
from ray.tune.experiment import Trial

from torch_holdout._shared.checks import shown
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.runs import as_run_name
from torch_holdout.tuning.claims import Claim, Pointer
from torch_holdout.tuning.sealed_claims import ClosedSweep
from torch_holdout.tuning.trial_runs import runs_of_trials

ACCOUNT = "holdout/account"
RUN = "holdout/run"
EVALUATION = "holdout/evaluation"
WEIGHTS = "holdout/weights"
_ITERATION = "training_iteration"

Key = tuple[str, int]  # a run's id, and the number of an evaluation in it


def run_label(experiment: str, trial: str) -> str:
    """Return what a trial's run is called; no other trial has this name.

    Example:
        >>> run_label("sweep", "c4a2a_00001")
        'sweep trial c4a2a_00001'
    """
    return as_run_name(f"{experiment} trial {trial}")


def results_of(results: Any) -> list[Any]:
    """Return Ray's results one by one; raise if they are not those of a Tuner."""
    try:
        given = iter(results)
    except TypeError:
        kind = type(results).__name__
        raise InvalidArgumentError(
            f"Expected the results of tuner.fit(), but got {kind}."
        ) from None
    found = []
    for result in given:  # one by one: whatever length it claims, nothing is set aside for it
        if not hasattr(result, "metrics_dataframe"):
            raise InvalidArgumentError(
                f"Expected the results of tuner.fit(), but got {type(result).__name__} among them."
            )
        found.append(result)
    return found


def require_grid(results: Any) -> ResultGrid:
    """Raise unless the results are a grid, which knows its trials."""
    if not isinstance(results, ResultGrid):
        raise InvalidArgumentError(
            f"Expected the ResultGrid that tuner.fit() returned, but got {shown(results)}. After "
            f"the driver has ended, tune.Tuner.restore(path, trainable).get_results() returns it."
        )
    return results


def trial_of(result: Any) -> str:
    """Return the id of a result's trial."""
    return str(result.metrics.get("trial_id"))


def pointers_of(result: Any, name: str, account: str) -> Iterator[Pointer]:
    """Yield the releases that a trial has reported on a live account."""
    table = _table(result, account)
    column = f"holdout/{name}/position"
    if table is None or column not in table:
        return
    for step, position in zip(table[_ITERATION], table[column], strict=True):
        if position == position:  # not NaN
            yield Pointer(trial_of(result), int(step), int(position), account, name)


def runs_of_results(results: Any, closing: Closing, account: str) -> dict[str, list[str]]:
    """Return the ids of each trial's runs: as it reported them, or by their label."""
    stored, labels = {}, {}
    experiment = PurePosixPath(getattr(results, "experiment_path", "")).name
    for result in results_of(results):
        trial = trial_of(result)
        table = _table(result, account)
        known = table is not None and RUN in table
        stored[trial] = list(table[RUN].dropna().unique()) if known else []
        labels[run_label(experiment, trial)] = trial
    return runs_of_trials(closing, stored=stored, labels=labels)


def checkpoint_places(results: Any) -> dict[Key, str]:
    """Return the folders of Ray's checkpoints, by the run and evaluation of their stamps.

    Stamps are read rather than tables: Ray may write a later checkpoint into the folder of an
    earlier report, and may lose reports when it starts a trial again.
    """
    places = {}
    for result in results_of(results):
        for checkpoint in _checkpoints(result):
            stamp = checkpoint.get_metadata()
            if RUN in stamp:
                places[stamp[RUN], stamp[EVALUATION]] = checkpoint.path
    return places


def closed_sweep(results: Any, closing: Closing, account: str) -> ClosedSweep:
    """Return the trials of Ray's results on a closed holdout."""
    runs, places = runs_of_results(results, closing, account), checkpoint_places(results)
    return ClosedSweep(closing, runs, account=account, places=places)


def closed_grid(results: ResultGrid, closing: Closing, account: str, statistic: str) -> ResultGrid:
    """Return the grid with closed values in its tables; each trial stands with its best evaluation.

    Args:
        results: The sweep's results.
        closing: The closed holdout.
        account: Its public mark.
        statistic: What decides which evaluation is best.
    """
    runs, places = runs_of_results(results, closing, account), checkpoint_places(results)
    sweep = ClosedSweep(closing, runs, account=account, places=places)
    best = {claim.trial: claim for claim in sweep.ranking(statistic)}
    stamps = {path: key for key, path in places.items()}
    analysis: Any = copy.copy(results._experiment_analysis)
    tables, trials = {}, []
    for trial, result in zip(analysis.trials, results_of(results), strict=True):
        own = runs.get(trial.trial_id, [])
        table = _closed_table(result, closing, own)
        tables[trial.trial_id] = table
        trials.append(_closed_trial(trial, result, table, best.get(trial.trial_id), stamps))
    analysis.trials, analysis._trial_dataframes = trials, tables
    analysis.default_metric, analysis.default_mode = statistic, closing.modes[statistic]
    return ResultGrid(analysis)


def _table(result: Any, account: str) -> Any:
    """Return a trial's reports on an account: positions and runs of another mean other ones."""
    table = result.metrics_dataframe
    if table is None or ACCOUNT not in table:
        return None
    return table[table[ACCOUNT] == account]


def _checkpoints(result: Any) -> Iterator[tune.Checkpoint]:
    """Yield the checkpoints in a trial's folder."""
    folder = pyarrow.fs.FileSelector(result.path, allow_not_found=True)
    found = result.filesystem.get_file_info(folder)
    for each in sorted(found, key=lambda info: info.path):
        if each.base_name.startswith("checkpoint_"):
            yield tune.Checkpoint(each.path, filesystem=result.filesystem)


def _closed_table(result: Any, closing: Closing, own: list[str]) -> Any:
    """Return a trial's reports with the closed values of their evaluations.

    Reports of a run that was given up are left out: the trial was tried again, and its evaluations
    exist no more. Evaluations whose report was lost are there without it.
    """
    values = _values(closing, own)
    reports = result.metrics_dataframe
    if reports is None or reports.empty:
        return values
    if RUN not in reports:
        return reports if values.empty else pd.concat([reports, values], ignore_index=True)
    kept = reports[reports[RUN].isna() | reports[RUN].isin(own)]
    told = kept[RUN].notna()
    again = kept[told].duplicated([RUN, EVALUATION, _ITERATION], keep="last")
    kept = kept.drop(index=again[again].index)
    closed = kept.merge(values, how="left", on=[RUN, EVALUATION])
    known = set(zip(kept[RUN], kept[EVALUATION], strict=True))
    missing = [key not in known for key in zip(values[RUN], values[EVALUATION], strict=True)]
    if not any(missing):
        return closed
    whole = pd.concat([closed, values[missing]], ignore_index=True)
    return whole.sort_values(EVALUATION, kind="stable", ignore_index=True)


def _values(closing: Closing, own: list[str]) -> Any:
    """Return the closed values of some runs: one row for each evaluation."""
    ids = {run.number: run.id for run in closing.runs if run.id in own}
    rows: dict[Key, dict[str, Any]] = {}
    for value in closing.values:
        if value.run in ids:
            key = (ids[value.run], value.evaluation)
            row = rows.setdefault(key, {RUN: key[0], EVALUATION: key[1]})
            low, high = f"holdout/{value.statistic}/low", f"holdout/{value.statistic}/high"
            row |= {value.statistic: value.value, low: value.low, high: value.high}
            row["holdout/step"] = value.step
    return pd.DataFrame(list(rows.values()), columns=None if rows else [RUN, EVALUATION])


def _closed_trial(
    trial: Any, result: Any, table: Any, best: Claim | None, stamps: Mapping[str, Key]
) -> Any:
    """Return a copy of a trial whose result is its best evaluation."""
    copied: Any = Trial(trial.trainable_name, stub=True)
    copied.__setstate__(trial.__getstate__())
    copied.status = trial.status
    metadata = copied.run_metadata = copy.copy(trial.run_metadata)
    metadata.metric_analysis = copy.deepcopy(metadata.metric_analysis)
    metadata.metric_n_steps = copy.deepcopy(metadata.metric_n_steps)
    if best is None:
        return copied
    rows = table.to_dict("records")
    by_key = {(row[RUN], row[EVALUATION]): _plain(row) for row in rows}
    chosen = by_key[best.run, best.evaluation]
    for name in [column for column in table if column not in metadata.metric_analysis]:
        numbers = [row[name] for row in rows if _is_number(row[name])]
        for step, number in enumerate(numbers, start=1):
            metadata.update_metric(name, number, step=step)
        if numbers and _is_number(chosen.get(name)):
            metadata.metric_analysis[name]["last"] = chosen[name]
    metadata.last_result = {**result.metrics, **chosen, WEIGHTS: best.weights}
    # The trial's checkpoints with closed values; the latest is that of its best evaluation.
    kept = {
        checkpoint.path: _TrainingResult(checkpoint, {**result.metrics, **by_key[key]})
        for checkpoint in _checkpoints(result)
        if (key := stamps.get(checkpoint.path)) in by_key
    }
    manager = metadata.checkpoint_manager = copy.copy(metadata.checkpoint_manager)
    manager._checkpoint_results = list(kept.values())
    manager._latest_checkpoint_result = kept.get(best.weights or "")
    return copied


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row has, without columns that are parts of a nested entry."""
    nested = ("config/",)
    return {key: value for key, value in row.items() if not key.startswith(nested)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)
