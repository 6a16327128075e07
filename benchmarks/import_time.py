"""What importing torch_holdout adds to torch and to Lightning, in fresh processes."""

import subprocess
import sys
from functools import partial

from _measure import asked_quick, medians, report

CODE = (
    "import time; {before}; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
)
OURS = {
    "import torch": "import torch_holdout",
    "import pytorch_lightning": "import torch_holdout as th; th.ReusableHoldout; "
    "from torch_holdout.pytorch_lightning import HoldoutGuard",
}
CASES = {"import torch": "the package alone", "import pytorch_lightning": "guard and holdout"}


def seconds(code: str, before: str = "pass") -> float:
    """Run code in a fresh interpreter and return how long it took after ``before``."""
    text = CODE.format(before=before, code=code)
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    return float(found.stdout)


def main() -> None:
    """Print one JSON line for each: our import against the one that comes before it."""
    repetitions = 1 if asked_quick(__doc__) else 3
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
