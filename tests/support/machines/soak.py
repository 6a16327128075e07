"""Sizes of the long proofs: small in `make test`, full under `make soak`."""

import os


def soak(full, short):
    """Return ``full`` under `make soak` (``TORCH_HOLDOUT_SOAK=1``), else ``short``."""
    return full if os.environ.get("TORCH_HOLDOUT_SOAK") else short
