"""A holdout in Hugging Face's Trainer. What all trainers share is in ``training/``."""

try:
    import accelerate as _accelerate
    import transformers as _transformers
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"torch_holdout.transformers needs {error.name}, which is not installed. Run pip install "
        f"'torch-holdout[transformers]'.",
        name=error.name,
    ) from None

from torch_holdout.transformers.trainer import HoldoutTrainer

del _accelerate, _transformers

__all__ = ["HoldoutTrainer"]
HoldoutTrainer.__module__ = __name__  # where pickles look for it
