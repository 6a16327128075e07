"""The model of a pass: prepared as the ``Trainer`` prepares it, the same on every process."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)

from torch_holdout._shared.distributed import rank_and_world

# Models whose labels belong to their own positions.
_ALIGNED = (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)


def evaluated_model(trainer: Any) -> nn.Module:
    """Return the model in evaluation mode, in the precision and on the device of evaluations."""
    model: nn.Module = trainer._wrap_model(trainer.model, training=False)
    if not trainer.accelerator._models and model is trainer.model:
        model = trainer.accelerator.prepare_model(model, evaluation_mode=True)
        if model is not trainer.model:
            trainer.model_wrapped = model
    args = trainer.args
    if not trainer.is_in_train and (args.fp16_full_eval or args.bf16_full_eval):
        dtype = torch.float16 if args.fp16_full_eval else torch.bfloat16
        model = model.to(dtype=dtype, device=args.device)
    model.eval()
    if callable(getattr(trainer.optimizer, "eval", None)):
        trainer.optimizer.eval()  # optimizers without a schedule keep other weights for it
    _, world = rank_and_world()
    for buffer in model.buffers() if world > 1 else ():
        dist.broadcast(buffer, src=0)  # as before the next training step; the first's are saved
    return model


def shifts_labels(model: nn.Module) -> bool | None:
    """Whether a label belongs to the position before it, as in a causal language model.

    None if neither its class nor a base of it is one that transformers lists.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=9, n_positions=4)
        >>> shifts_labels(GPT2LMHeadModel(config)), shifts_labels(nn.Linear(1, 1))
        (True, None)
    """
    adapted = getattr(model, "get_base_model", None)  # of an adapter around it
    known = model if adapted is None else adapted()
    names = {base.__name__ for base in type(known).__mro__}
    if names & _names(_ALIGNED):
        return False
    return True if names & _names((MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,)) else None


def _names(tables: tuple[Mapping[str, Any], ...]) -> set[str]:
    """Return the classes of some tables; an entry may be several."""
    entries = (entry for table in tables for entry in table.values())
    return {name for each in entries for name in ((each,) if isinstance(each, str) else each)}
