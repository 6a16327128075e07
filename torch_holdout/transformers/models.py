"""The model of a pass: prepared as the ``Trainer`` prepares it, the same on every process."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from torch_holdout._shared.distributed import rank_and_world


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


def shifts_labels(trainer: Any) -> bool:
    """Whether a label belongs to the position before it, as in a causal language model."""
    known = getattr(trainer, "_loss_shifts_labels", None)
    if known is not None:
        return bool(known)
    model = trainer.accelerator.unwrap_model(trainer.model)
    return type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
