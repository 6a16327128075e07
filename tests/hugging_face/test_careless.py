"""Careless code in a Trainer: each is refused or harmless, and nothing raw is written."""

import json
import logging

import pytest
import torch
import torch_holdout as th
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from torch_holdout.transformers import HoldoutTrainer
from torchmetrics import MeanMetric
from transformers import Trainer, TrainerCallback

from support.builders.hugging_face import live, model_for, raw_values, sealed, trainer_for
from support.oracles.leaks import files_below, raw_hits

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(tensorboard|google).*"),
]
PATTERNS = {}


def careless(words):
    """Register a function (base class) -> trainer class, options; ``words`` are a refusal's."""

    def register(build):
        PATTERNS[build.__name__] = (build, words)
        return build

    return register


def losses(p):
    return torch.nn.functional.cross_entropy(p.predictions, p.label_ids, reduction="none")


def with_values(base, values):
    """A trainer whose function of the values is careless; unguarded it is called by hand."""
    if issubclass(base, HoldoutTrainer):
        return base, {"values": values}

    class Unguarded(base):
        def prediction_step(self, *args, **kwargs):
            from transformers import EvalPrediction

            loss, logits, labels = super().prediction_step(args[0], args[1], False)
            values(EvalPrediction(logits, labels))
            return loss, None, None

    return Unguarded, {}


@careless("self.log|were logged")
def loss_logs(base):
    class Mine(base):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, True, **kwargs)
            if not model.training:
                self.log({"raw": float(loss)})
            return (loss, outputs) if return_outputs else loss

    return Mine, {"values": lambda p: {"loss": losses(p)}}


@careless("were logged")
def loss_logs_past_the_method(base):
    class Mine(base):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, True, **kwargs)
            if not model.training:
                Trainer.log(self, {"raw": loss.item()})
            return (loss, outputs) if return_outputs else loss

    return Mine, {"values": lambda p: {"loss": losses(p)}}


@careless("kept_losses")
def loss_is_kept(base):
    class Mine(base):
        kept_losses = None

        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, True, **kwargs)
            if not model.training:
                self.kept_losses = [*(self.kept_losses or []), loss.detach()]
            return (loss, outputs) if return_outputs else loss

    return Mine, {"values": lambda p: {"loss": losses(p)}, "callbacks": [LogsKept()]}


@careless("kept_losses")
def prediction_step_keeps(base):
    class Mine(base):
        def prediction_step(self, *args, **kwargs):
            loss, logits, labels = super().prediction_step(*args, **kwargs)
            self.kept_losses = [loss]
            return loss, logits, labels

    return Mine, {"callbacks": [LogsKept()]}


@careless("item|float")
def prediction_step_writes_a_file(base):
    class Mine(base):
        def prediction_step(self, *args, **kwargs):
            loss, logits, labels = super().prediction_step(*args, **kwargs)
            with open(f"{self.args.output_dir}/losses.txt", "a") as file:
                file.write(f"{loss.item()}\n")
            return loss, logits, labels

    return Mine, {}


@careless("as text|format|str")
def values_prints(base):
    def values(p):
        print(f"{losses(p).mean():.9f}")
        return {"loss": losses(p)}

    return with_values(base, values)


@careless("item")
def values_logs(base):
    def values(p):
        logging.getLogger("mine").warning("%f", losses(p).mean().item())
        return {"loss": losses(p)}

    return with_values(base, values)


@careless("kept")
def values_has_an_attribute(base):
    def values(p):
        values.kept.append(losses(p).mean())
        return {"loss": losses(p)}

    values.kept = []
    return with_values(base, values)


@careless("kept")
def values_is_an_object(base):
    class Values:
        kept = None

        def __call__(self, p):
            self.kept = losses(p)
            return {"loss": losses(p)}

    return with_values(base, Values())


@careless("numpy")
def values_takes_numpy(base):
    store = []

    def values(p):
        store.append(losses(p).cpu().numpy().mean())
        return {"loss": losses(p)}

    return with_values(base, values)


@careless("outputs")
def a_forward_hook_keeps_outputs(base):
    outputs = []

    class Mine(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.model.register_forward_hook(
                lambda module, inputs, result: (
                    outputs.append(result.logits) if not module.training else None
                )
            )

    return Mine, {}


@careless("last_loss")
def a_model_keeps_its_loss(base):
    class Mine(base):
        def prediction_step(self, model, *args, **kwargs):
            result = super().prediction_step(model, *args, **kwargs)
            model.last_loss = result[0]
            return result

    return Mine, {"callbacks": [LogsModel()]}


@careless("add_scalar|item|float|reads")
def a_writer_of_its_own(base):
    class Mine(base):
        def prediction_step(self, *args, **kwargs):
            result = super().prediction_step(*args, **kwargs)
            with SummaryWriter(self.args.output_dir) as writer:
                writer.add_scalar("raw", result[0], self.state.global_step)
            return result

    return Mine, {}


@careless("metric")
def a_metric_of_the_trainer(base):
    class Mine(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.mean = MeanMetric()

        def prediction_step(self, *args, **kwargs):
            result = super().prediction_step(*args, **kwargs)
            self.mean.update(result[0])
            return result

    return Mine, {}


@careless("were logged|reads")
def history_is_written(base):
    class Mine(base):
        def prediction_step(self, *args, **kwargs):
            result = super().prediction_step(*args, **kwargs)
            self.state.log_history.append({"raw": result[0].item()})
            return result

    return Mine, {}


@careless("preprocess_logits|kept|reads")
def preprocessing_keeps(base):
    kept = []

    def preprocess(logits, labels):
        kept.append(logits.sum().item())
        return logits

    return base, {"preprocess_logits_for_metrics": preprocess, **prediction_needed(base)}


@careless("iterates `eval_dataloader`")
def a_callback_reads_the_loader(base):
    class Reads(TrainerCallback):
        def on_evaluate(self, args, state, control, model, eval_dataloader, **kwargs):
            total = [model(**batch).loss.item() for batch in eval_dataloader]
            write(args, "callback", total)

    return base, {"callbacks": [Reads()]}


@careless(r"get_eval_dataloader\(\) was called")
def a_callback_makes_the_loader(base):
    return base, {"callbacks": [MakesLoader()]}


@careless(r"predict\(\) on other data")
def a_callback_predicts(base):
    return base, {"callbacks": [Predicts()]}


@careless(r"predict\(\) on other data")
def a_callback_predicts_with_another_column(base):
    return base, {"callbacks": [PredictsNumbered()]}


@careless("cannot be compared")
def a_callback_evaluates_batches_it_has_kept(base):
    return base, {"callbacks": [EvaluatesKept()]}


@careless(None)
def a_callback_reads_what_is_published(base):
    class Reads(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            write(args, "metrics", [metrics.get("eval_loss")])
            write(args, "state", str(vars(state)))

    return base, {"callbacks": [Reads()]}


@careless(None)
def a_callback_reads_the_trainer(base):
    return base, {"callbacks": [ReadsTrainer()]}


def prediction_needed(base):
    """An unguarded Trainer computes logits only for its metrics."""
    return {} if issubclass(base, HoldoutTrainer) else {"compute_metrics": lambda p: {}}


def write(args, name, content):
    with open(f"{args.output_dir}/{name}.json", "a") as file:
        file.write(json.dumps(content) + "\n")


class WithTrainer(TrainerCallback):
    """A callback that was given the trainer, as many are."""

    trainer = None


class LogsKept(WithTrainer):
    def on_epoch_begin(self, args, state, control, **kwargs):
        if kept := getattr(self.trainer, "kept_losses", None):
            self.trainer.log({"kept": float(kept[0])})


class LogsModel(WithTrainer):
    def on_epoch_begin(self, args, state, control, model, **kwargs):
        if (kept := getattr(model, "last_loss", None)) is not None:
            self.trainer.log({"kept": float(kept)})


class MakesLoader(WithTrainer):
    @torch.no_grad()
    def on_evaluate(self, args, state, control, model, **kwargs):
        loader = self.trainer.get_eval_dataloader()
        write(args, "callback", [model(**batch).loss.item() for batch in loader])


class Predicts(WithTrainer):
    def on_epoch_end(self, args, state, control, **kwargs):
        write(args, "predicted", self.trainer.predict(self.trainer.eval_dataset).metrics)


class PredictsNumbered(WithTrainer):
    def on_epoch_end(self, args, state, control, **kwargs):
        rows = [{"idx": index, **row} for index, row in enumerate(self.trainer.eval_dataset)]
        write(args, "predicted", self.trainer.predict(rows).metrics)


class Kept:
    """Batches that were read before; they do not tell of which dataset."""

    def __init__(self, dataset):
        self.batches = list(DataLoader(dataset, batch_size=9))

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class EvaluatesKept(WithTrainer):
    def on_epoch_end(self, args, state, control, **kwargs):
        kept = Kept(self.trainer.eval_dataset)
        write(args, "evaluated", self.trainer.evaluation_loop(kept, "Evaluation").metrics)


class ReadsTrainer(WithTrainer):
    def on_evaluate(self, args, state, control, **kwargs):
        write(args, "trainer", {name: str(value) for name, value in vars(self.trainer).items()})


class Raws(WithTrainer):
    """Notes the raw values of the weights that are evaluated, at the first batch of each pass."""

    def __init__(self):
        self.raw, self.steps = [], set()

    def on_epoch_end(self, args, state, control, model, **kwargs):
        values = raw_values(model, self.trainer.eval_dataset, "classes")
        self.raw += [value for name, value in values.items() if name != "accuracy"]


def run(build, way, folder, capsys, caplog):
    """Train with careless code; return the error, all that left and the raw values."""
    base = {"live": HoldoutTrainer, "sealed": HoldoutTrainer, "unguarded": Trainer}[way]
    kind, options = build(base)
    if way == "unguarded":
        options.pop("values", None)
    noting = Raws()
    options["callbacks"] = [noting, *options.get("callbacks", ())]
    statistics = {"loss": th.BoundedMean(0.0, 5.0)}
    accounts = {"live": live, "sealed": sealed, "unguarded": lambda **_: None}
    holdout = accounts[way](statistics=statistics)
    error = None
    model = model_for("classes")
    try:
        trainer = trainer_for(
            "classes", folder, holdout, kind=kind, model=model,
            args={"num_train_epochs": 2, "logging_strategy": "no", "save_strategy": "no"},
            **options,
        )  # fmt: skip
        for callback in options["callbacks"]:
            callback.trainer = trainer
        noting.on_epoch_end(trainer.args, trainer.state, trainer.control, model)
        trainer.train()
    except th.HoldoutError as refusal:
        error = refusal
    trainer.save_state()
    printed = capsys.readouterr()
    left = {
        "files": {k: v for k, v in files_below(folder).items() if "safetensors" not in k},
        "history": trainer.state.log_history,
        "printed": printed.out + printed.err,
        "logged": caplog.text,
        "error": str(error),
    }
    return error, left, noting.raw


@pytest.mark.parametrize("way", ["live", "sealed"])
@pytest.mark.parametrize("name", PATTERNS)
def test_careless_code_is_refused_or_harmless(name, way, tmp_path, capsys, caplog):
    build, words = PATTERNS[name]
    error, left, raw = run(build, way, tmp_path, capsys, caplog)
    assert raw
    assert raw_hits(left, raw) == []
    if words is None:
        assert error is None
    else:
        assert error is not None
        assert any(word in str(error) for word in words.replace("\\", "").split("|")), str(error)


# What these keep is not written anywhere by the pattern itself.
KEPT = ("values_has_an_attribute", "values_is_an_object", "values_takes_numpy")
KEPT += ("a_forward_hook_keeps_outputs", "a_metric_of_the_trainer", "preprocessing_keeps")


@pytest.mark.parametrize("name", [name for name in PATTERNS if name not in KEPT])
def test_unguarded_the_same_code_writes_raw_values(name, tmp_path, capsys, caplog):
    build, _ = PATTERNS[name]
    error, left, raw = run(build, "unguarded", tmp_path, capsys, caplog)
    assert error is None
    left["history"] = [row for row in left["history"] if "eval_loss" not in row]
    own = {k: v for k, v in left["files"].items() if k != "trainer_state.json"}
    assert raw_hits({**left, "files": own}, raw)


def test_public_keys_and_attributes_may_be_declared(tmp_path):
    class Mine(HoldoutTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            if not model.training:
                self.log({"batches": 1.0})
                self.last_ids = inputs["input_ids"]
            return super().compute_loss(model, inputs, return_outputs, **kwargs)

    trainer = trainer_for(
        "classes", tmp_path, live(statistics={"loss": th.BoundedMean(0, 5)}), kind=Mine,
        values=lambda p: {"loss": losses(p)}, public=("batches", "last_ids"),
    )  # fmt: skip
    trainer.evaluate()
    assert [row["batches"] for row in trainer.state.log_history if "batches" in row] == [1.0] * 5


def test_dropping_warns_and_writes_nothing(tmp_path):
    class Mine(HoldoutTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, True, **kwargs)
            if not model.training:
                self.log({"raw": loss})
            return (loss, outputs) if return_outputs else loss

    trainer = trainer_for(
        "classes", tmp_path, live(statistics={"loss": th.BoundedMean(0, 5)}), kind=Mine,
        values=lambda p: {"loss": losses(p)}, unguarded="drop",
    )  # fmt: skip
    with pytest.warns(th.HoldoutWarning, match="'raw'.*were dropped"):
        trainer.evaluate()
    assert not any("raw" in row for row in trainer.state.log_history)
