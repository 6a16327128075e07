"""What ``import torch_holdout`` adds to ``import torch``, in fresh processes."""

import argparse
import json
import statistics
import subprocess
import sys

CODE = (
    "import time, torch; start = time.perf_counter(); import torch_holdout; "
    "print(time.perf_counter() - start)"
)
TORCH = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"


def seconds(code: str) -> float:
    """Run code in a fresh interpreter and return the seconds it prints."""
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )


def main() -> None:
    """Print one JSON line: our import against torch's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repetitions = 3 if parser.parse_args().quick else 9
    pairs = [(seconds(CODE), seconds(TORCH)) for _ in range(repetitions)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        json.dumps(
            {
                "benchmark": "import_time",
                "case": "after torch",
                "peer": "import torch",
                "ratio": round(ours / theirs, 5),
                "better": "lower",
                "ours": round(ours, 5),
                "theirs": round(theirs, 3),
                "unit": "s",
            }
        )
    )


if __name__ == "__main__":
    main()
