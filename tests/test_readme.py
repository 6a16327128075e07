"""Every code block of the README runs, in order, in an empty folder; its commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


# Lightning's own, of how it looks into batches and loaders.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:.*num_workers.*")
def test_the_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "19 of 20 releases left" in printed
    assert "95 % confidence" in printed
    assert "20 queries answered" in printed


@pytest.mark.filterwarnings("ignore")
def test_the_lightning_diff_runs(tmp_path, monkeypatch):
    """The lines it leaves in place, on a module that is otherwise ordinary."""
    monkeypatch.chdir(tmp_path)
    (diff,) = re.findall(r"```diff\n(.*?)```", README, flags=re.DOTALL)
    code = "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))
    code = code.replace("L.Trainer(", "L.Trainer(max_epochs=2, logger=False, ")
    names = {}
    exec(PRELUDE, names)
    exec(compile(code, "README.md", "exec"), names)
    exec(EPILOGUE, names)
    assert names["holdout"].status().queries == 4
    assert set(names["trainer"].callback_metrics) >= {"val_loss", "val_acc", "holdout/budget_left"}


PRELUDE = """
import lightning as L, torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
val_set = TensorDataset(torch.randn(100, 4), torch.arange(100) % 3)
"""
EPILOGUE = """
class Whole(Net):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.layer(x)
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
loader = DataLoader(val_set, batch_size=20)
trainer.fit(Whole(), loader, loader)
"""


@pytest.mark.parametrize("target", re.findall(r"make (\w+)", README))
def test_the_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize(
    "name", re.findall(r"`((?:examples|docs|configs)/[\w./]+|\w+\.md)`", README)
)
def test_the_files_it_names_exist(name):
    assert (ROOT / name).exists()


def test_the_public_names_it_uses_exist():
    import torch_holdout as th

    for name in set(re.findall(r"\bth\.(\w+)", README)):
        assert name in th.__all__
