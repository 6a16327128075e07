"""The name of a Trainer's run, for people who read the report."""

import contextlib
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch_holdout.holdout.runs import as_run_name


def name_of_run(trainer: Any) -> str:
    """Name a run by its logger's folder (loggers without one are not asked), or by the time."""
    folder = None
    if trainer.is_global_zero:
        with contextlib.suppress(Exception):  # whatever a logger does, a label stops no run
            folder = Path(trainer.logger.log_dir)
    if folder is None:
        start = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{trainer.state.fn.value} of {start}, process {os.getpid()}"
    return as_run_name("/".join(folder.parts[-2:]))
