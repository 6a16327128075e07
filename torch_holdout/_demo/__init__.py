"""What ``torch-holdout demo`` runs. Experiments that are not shown there are in ``examples/``."""
