"""Small Hugging Face models of random weights, their data, and trainers with a holdout."""

import torch
import torch_holdout as th
from torch.utils.data import Dataset
from torch_holdout.transformers import HoldoutTrainer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainingArguments,
)
from transformers.utils import logging as transformers_logging

TASKS = ("classes", "tokens", "language")
SIZE, TRAINED, WORDS, LENGTH = 45, 60, 50, 8
transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()


class Rows(Dataset):
    """Sequences of tokens and what is to be learnt of them; some tokens have no label."""

    def __init__(self, task, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(3, WORDS, (size, LENGTH), generator=generator)
        large = (self.ids > WORDS // 2).long()
        self.labels = {"classes": large[:, 0], "tokens": large, "language": self.ids}[task].clone()
        if task != "classes":
            lengths = torch.randint(3, LENGTH + 1, (size, 1), generator=generator)
            self.labels[torch.arange(LENGTH) >= lengths] = -100

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def model_for(task):
    """A model with the same weights each time, and without dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if task == "language":
            return GPT2LMHeadModel(
                GPT2Config(
                    vocab_size=WORDS,
                    n_embd=16,
                    n_layer=1,
                    n_head=2,
                    n_positions=16,
                    bos_token_id=1,
                    eos_token_id=2,
                    resid_pdrop=0.0,
                    embd_pdrop=0.0,
                    attn_pdrop=0.0,
                )
            )
        config = BertConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=16, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        kind = {"classes": BertForSequenceClassification, "tokens": BertForTokenClassification}
        return kind[task](config)


def arguments(folder, **changes):
    facts = {
        "output_dir": str(folder),
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "num_train_epochs": 3,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "logging_strategy": "epoch",
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 20,
        "per_device_eval_batch_size": 10,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**facts, **changes})


def live(url="memory://", **changes):
    facts = {
        "name": "held out",
        "size": SIZE,
        "statistics": {
            "loss": th.BoundedMean(0.0, 5.0),
            "accuracy": th.BoundedMean(0.0, 1.0, mode="max"),
        },
        "mechanism": th.Thresholdout(threshold=0.01, sigma=0.01, guess="last"),
        "budget": 40,
    }
    return th.ReusableHoldout(url, **{**facts, **changes})


def sealed(url="memory://", **changes):
    return live(url, **{"mechanism": th.Sealed(evaluations=20), "budget": 3, **changes})


def trainer_for(task, folder, holdout, *, kind=HoldoutTrainer, args=(), **changes):
    """A trainer of a task; ``args`` are changes of its TrainingArguments."""
    facts = {
        "train_dataset": Rows(task, TRAINED, 1),
        "eval_dataset": Rows(task, SIZE, 2),
        "holdout": holdout,
    }
    given = {**facts, **changes}
    if holdout is None:
        given.pop("holdout")
    model = given.pop("model", None) or model_for(task)
    return kind(model, arguments(folder, **dict(args)), **given)


def token_losses(logits, labels, task):
    """Losses of tokens or classes, and which of them count."""
    if task == "language":
        logits, labels = logits[:, :-1], labels[:, 1:]
    losses = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="none"
    )
    return losses.view(labels.shape), labels != -100, logits.argmax(-1) == labels


@torch.no_grad()
def raw_values(model, rows, task):
    """The raw numbers of a model on rows: means by example, by token, and batch losses."""
    mode = model.training
    model.eval()
    numbers = {}
    logits = model(input_ids=rows.ids).logits
    losses, counts, hits = token_losses(logits, rows.labels, task)
    if task == "classes":
        numbers["loss"], numbers["accuracy"] = losses.mean(), hits.double().mean()
    else:
        per_sequence = (losses * counts).sum(1) / counts.sum(1).clamp(min=1)
        right = (hits * counts).sum(1) / counts.sum(1).clamp(min=1)
        numbers["loss"], numbers["accuracy"] = per_sequence.mean(), right.mean()
        numbers["token loss"] = (losses * counts).sum() / counts.sum()
        numbers["token accuracy"] = (hits & counts).sum() / counts.sum()
    for start in range(0, len(rows), 10):
        part = slice(start, start + 10)
        numbers[f"batch {start}"] = model(rows.ids[part], labels=rows.labels[part]).loss
    model.train(mode)
    return {name: float(value) for name, value in numbers.items()}
