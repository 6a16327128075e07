"""README's first run chooses a model that is as good as the one raw values would have chosen."""

import re
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.nn import functional

import lightning
from support.machines.soak import soak

pytestmark = [
    pytest.mark.soak,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about workers and the like
]

README = (Path(__file__).parent.parent / "README.md").read_text()
(SCRIPT,) = (
    text
    for text in re.findall(r"^```python\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    if "import lightning" in text
)
SEEDS = soak(range(8), range(2))
FRESH = 100_000
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}


def run(text, seed, *changes):
    """Run README's lines with another seed and these changes; return the names they leave."""
    for old, new in (("torch.manual_seed(0)", f"torch.manual_seed({seed})"), *changes):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    names = {}
    exec(compile(text, "README.md", "exec"), names)
    return names


def fresh_accuracy(net, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(FRESH, 20, generator=generator)
    with torch.no_grad():
        right = net.eval().layers(x).argmax(1) == (x[:, 0] + x[:, 1] * x[:, 2] > 0)
    return right.double().mean().item()


def by_guarded_values(seed, budget=40):
    """Accuracy on fresh examples of the run as README has it."""
    names = run(
        SCRIPT[: SCRIPT.index("print(")],
        seed,
        ('"sqlite:///holdout.db"', '"memory://"'),
        ("budget=40,", f"budget={budget}, seed={seed},"),
        ("trainer = L.Trainer(", f"trainer = L.Trainer(enable_checkpointing=False, **{QUIET},"),
        ("trainer.fit(Net()", "trainer.fit(net := Net()"),
    )
    return fresh_accuracy(names["net"], seed)


def by_raw_values(seed, folder):
    """Accuracy of the best weights of the same run, stopped by raw values."""
    names = run(SCRIPT[: SCRIPT.index("holdout = ")], seed)

    class Logging(names["Net"]):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", functional.cross_entropy(self.layers(batch[0]), batch[1]))

    best = ModelCheckpoint(folder, monitor="val_loss")
    stop = EarlyStopping("val_loss", patience=10)
    net = Logging()
    trainer = lightning.Trainer(max_epochs=60, callbacks=[stop, best], **QUIET)
    trainer.fit(net, names["train_loader"], names["val_loader"])
    net.load_state_dict(torch.load(best.best_model_path)["state_dict"])
    return fresh_accuracy(net, seed)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    return [by_raw_values(seed, folder / str(seed)) for seed in SEEDS]


def differences(raw, **changes):
    found = [by_guarded_values(seed, **changes) for seed in SEEDS]
    apart = [own - other for own, other in zip(found, raw, strict=True)]
    print(f"{changes}: guarded less raw accuracy {[round(each, 4) for each in apart]}")
    return apart


def is_as_good(apart):
    """Within .01 of raw values in the mean, and no seed beyond .02."""
    return sum(apart) / len(apart) >= -0.01 and min(apart) >= -0.02


def test_the_first_run_is_as_good_as_by_raw_values(raw):
    assert is_as_good(differences(raw))


def test_twin_with_a_budget_that_the_steep_start_burns_is_caught(raw):
    assert not is_as_good(differences(raw, budget=3))
