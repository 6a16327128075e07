"""A Hugging Face Trainer with a holdout: early stopping on guarded values, then by decisions.

A small BERT of random weights learns whether the first token of a sequence is large. Nothing is
downloaded. Run it:

    python examples/hugging_face.py [--ledger holdout.db] [--epochs 6]

It takes about 20 seconds. Look at: `eval_loss`, which changes in steps while the budget lasts; the
sealed run, which shows counts only until it is closed. It leaves the ledger, if you name one, and
otherwise nothing. With a ledger of your own a second run repeats its answers for free, and begins
another sealed run.
"""

import argparse
import tempfile

import torch
import torch_holdout as th
from torch_holdout.transformers import HoldoutTrainer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    TrainingArguments,
)
from transformers.utils import logging

WORDS, LENGTH, SIZE = 50, 8, 500


def sequences(size, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, WORDS, (size, LENGTH), generator=generator)
    noise = torch.rand(size, generator=generator) < 0.1  # labels that cannot be learnt
    labels = (ids[:, 0] > WORDS // 2).logical_xor(noise).long()
    return [{"input_ids": i, "labels": label} for i, label in zip(ids, labels, strict=True)]


def classifier():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    return BertForSequenceClassification(config)


def trainer_with(folder, epochs, holdout, *, best=False, **options):
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        learning_rate=5e-3,
        per_device_train_batch_size=50,
        per_device_eval_batch_size=100,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="no",
        load_best_model_at_end=best,
        metric_for_best_model="loss" if best else None,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    return HoldoutTrainer(
        classifier(),
        args,
        train_dataset=sequences(1000, seed=1),
        eval_dataset=sequences(SIZE, seed=2),
        holdout=holdout,
        **options,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledger", help="a file that outlives the run")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    url = f"sqlite:///{options.ledger}" if options.ledger else "memory://"
    facts = {"size": SIZE, "statistics": {"loss": th.CrossEntropy(2.0), "accuracy": th.ZeroOne()}}
    live = th.ReusableHoldout(
        url,
        name="sequences",
        mechanism=th.Thresholdout(threshold=0.03, sigma=0.005, guess="last"),
        budget=20,
        **facts,
    )
    sealed = th.ReusableHoldout(
        url, name="sequences, sealed", mechanism=th.Sealed(evaluations=50), budget=5, **facts
    )
    with tempfile.TemporaryDirectory() as folder:
        stopping = [EarlyStoppingCallback(5)]
        trainer = trainer_with(folder, options.epochs, live, best=True, callbacks=stopping)
        trainer.train()
        rows = [row for row in trainer.state.log_history if "eval_loss" in row]
        print(f"live: eval_loss {[round(row['eval_loss'], 3) for row in rows]}")
        print(f"      asked {live.status().queries} times, {live.budget_left} releases left")
        patience = th.Patience("loss", patience=3)
        trainer = trainer_with(folder, options.epochs, sealed, stop=patience)
        trainer.train()
        outcome = trainer.outcome
        print(f"sealed: {outcome.evaluations} evaluations, the best is {outcome.best_evaluation}")
        print(
            f"        the card and the state hold {sorted(trainer.state.log_history[0])[:4]}, ..."
        )
        if not options.ledger:  # closing is for good
            print(sealed.close())


if __name__ == "__main__":
    try:
        main()
    except th.HoldoutError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
