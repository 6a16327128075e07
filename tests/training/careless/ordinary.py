"""The catalogue of ordinary modules, which must pass untouched."""

from training.careless import (
    ordinary_batches,
    ordinary_generative,
    ordinary_losses,
    ordinary_models,
    ordinary_steering,
    ordinary_trainers,
)

FILES = (
    ordinary_models,
    ordinary_generative,
    ordinary_losses,
    ordinary_batches,
    ordinary_steering,
    ordinary_trainers,
)
CASES = [case for file in FILES for case in file.CASES]
