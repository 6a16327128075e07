"""Loggers that people have, offline, and what each of them wrote, read back from its files."""

import contextlib
import csv
import importlib
import json
import os
import sqlite3
import struct
from unittest import mock

BLOCK, HEADER, FULL, LAST = 32768, 7, 1, 4


@contextlib.contextmanager
def logging_to(namespace, folder, kinds):
    """Make a logger of each kind that writes below ``folder``; none reaches for a network."""
    made = importlib.import_module(f"{namespace}.loggers")
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(folder)}
    with mock.patch.dict(os.environ, quiet):
        yield [_logger(made, kind, folder) for kind in kinds]
        if "wandb" in kinds:
            import wandb

            wandb.finish()
            wandb.teardown()  # a finished run is still being written: this waits for the writer


def _logger(made, kind, folder):
    if kind == "wandb":
        import wandb

        still = wandb.Settings(x_disable_stats=True, silent=True)
        return made.WandbLogger(project="p", save_dir=folder, offline=True, settings=still)
    if kind == "mlflow":
        return made.MLFlowLogger("e", tracking_uri=f"sqlite:///{folder}/mlflow.db")
    if kind == "csv":
        return made.CSVLogger(folder / "csv")
    return made.TensorBoardLogger(folder / "tensorboard")


def written_by(kind, folder):
    """Return ``{step: {key: value}}``."""
    return {"wandb": _wandb, "mlflow": _mlflow, "csv": _csv, "tensorboard": _tensorboard}[kind](
        folder
    )


def _csv(folder):
    (found,) = folder.rglob("metrics.csv")
    with found.open() as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return {int(row.pop("step")): row for row in rows}


def _tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (found,) = folder.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(found)).Reload()
    rows = {}
    for key in events.Tags()["scalars"]:
        for event in events.Scalars(key):
            rows.setdefault(event.step, {})[key] = event.value
    return rows


def _mlflow(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "e"]
    (run,) = client.search_runs([experiment.experiment_id])
    rows = {}
    for key in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, key):
            rows.setdefault(point.step, {})[key] = point.value
    return rows


def _wandb(folder):
    from wandb.proto import wandb_internal_pb2 as records

    (found,) = (folder / "wandb").rglob("*.wandb")
    rows = {}
    for content in _records(found.read_bytes()):
        record = records.Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
            step = row.pop("trainer/global_step")
            rows[step] = {k: v for k, v in row.items() if not k.startswith("_")}
    return rows


def _records(content):
    """Read a LevelDB log: blocks of 32 KiB; a record may go on in the next block."""
    place, parts = HEADER, []
    while place + HEADER <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts.append(content[place + HEADER : place + HEADER + length])
        place += HEADER + length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


def rows_of(database):
    """Return every value of every table, to be searched."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
