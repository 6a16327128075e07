"""What importing torch_holdout adds to torch and to Lightning, in fresh processes; its command.

Commands are whole processes: ``--help`` against one that imports typer, ``plan`` against one that
imports numpy too, both of which they need. Planning itself is timed where it is imported.
"""

import resource
import subprocess
import sys
import time
from functools import partial

import torch_holdout as th
from _measure import asked_quick, medians, report, timed

CODE = (
    "import time; {before}; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
)
OURS = {
    "import torch": "import torch_holdout",
    "import pytorch_lightning": "import torch_holdout as th; th.ReusableHoldout; "
    "from torch_holdout.pytorch_lightning import HoldoutGuard",
}
CASES = {"import torch": "the package alone", "import pytorch_lightning": "guard and holdout"}
COMMAND = "import sys; sys.argv[0] = 'torch-holdout'; from torch_holdout.cli import main; main()"
SETTING = {"size": 10_000, "queries": 200, "budget": 20}
COMMANDS = {
    "import typer": ["--help"],
    "import typer, numpy": ["plan", *(f"--{name}={value}" for name, value in SETTING.items())],
}


def seconds(code: str, before: str = "pass") -> float:
    """Run code in a fresh interpreter and return how long it took after ``before``."""
    text = CODE.format(before=before, code=code)
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    return float(found.stdout)


def process(code: str, *arguments: str) -> float:
    """Run a whole process and return its processor time."""
    before = _computed_by_children()
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, capture_output=True, check=True)
    return _computed_by_children() - before


def _computed_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show_commands(repetitions: int) -> None:
    """Print what the command takes, and what a plan takes in a process that has the library."""
    show = partial(report, "import_time", unit="CPU s", yardstick=True)
    for peer, arguments in COMMANDS.items():
        ours, theirs = medians(
            partial(process, COMMAND, *arguments), partial(process, peer), repetitions=repetitions
        )
        case = f"torch-holdout {arguments[0]}"
        show(case=case, peer=f"python -c '{peer}'", ours=ours, theirs=theirs)
    planning = timed(lambda: th.plan(**SETTING), time.process_time)
    (planned,) = medians(planning, repetitions=repetitions)
    show(case="th.plan(), imported", peer="torch-holdout plan", ours=planned, theirs=ours)


def main() -> None:
    """Print one JSON line for each: our import against the one that comes before it."""
    repetitions = 1 if asked_quick(__doc__) else 3
    show_commands(3 * repetitions)
    for before, code in OURS.items():
        ours, theirs = medians(
            partial(seconds, code, before), partial(seconds, before), repetitions=repetitions
        )
        report(
            "import_time",
            case=CASES[before],
            peer=before,
            ours=ours,
            theirs=theirs,
            unit="s",
            yardstick=True,
        )


if __name__ == "__main__":
    main()
