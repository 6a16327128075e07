"""Private prediction from a configuration: LightningCLI, on bundled digits.

    python examples/train_private.py fit --config configs/private_ensemble.yaml
    python examples/train_private.py predict --config configs/private_ensemble.yaml \
        --ckpt_path lightning_logs/version_0/checkpoints/epoch=0-step=100.ckpt

``fit`` trains one network on each part of the private digits and then answers a few queries from
their votes; ``predict`` answers again from a checkpoint. Both charge the records' account in the
ledger, which outlives the runs, until the budget that the file gives is gone. Each takes about ten
seconds and leaves ``lightning_logs`` and ``private.db``. The checkpoint is as secret as the
records.
"""

import torch
import torch_holdout as th
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from plain_loop import digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.prediction import Partition
from torch_holdout.prediction.lightning import (
    PartitionedDataModule,
    PartitionedEnsemble,
    PrivatePredictor,
)


class Network(nn.Module):
    """A member.

    Args:
        width: Of the hidden layer.
    """

    def __init__(self, width: int = 32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)


class PrivateDigits(PartitionedDataModule):
    """1,000 private digits in parts, and some others to ask about.

    Args:
        parts: The ensemble's partition.
        batch_size: Records of each part in a step.
        steps_per_epoch: Steps in an epoch.
        queries: How many digits to ask about.
    """

    def __init__(
        self, parts: Partition, batch_size: int = 20, steps_per_epoch: int = 100, queries: int = 20
    ):
        records, others = digits()
        super().__init__(records, parts, batch_size=batch_size, steps_per_epoch=steps_per_epoch)
        self.others = TensorDataset(*(column[:queries] for column in others.tensors))

    def predict_dataloader(self):
        return DataLoader(self.others, batch_size=100)


class PrivateCLI(LightningCLI):
    """The usual command line, and one section more: ``predictor``."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser):
        parser.add_class_arguments(PrivatePredictor, "predictor")
        parser.link_arguments("model.partition", "data.parts", apply_on="instantiate")
        parser.link_arguments("model", "predictor.ensemble", apply_on="instantiate")
        # Renaming the records does not refill their budget, because the data are recognised.
        parser.link_arguments(
            "data", "predictor.fingerprint", compute_fn=of_records, apply_on="instantiate"
        )

    def after_fit(self):
        self.predict(self.model, self.datamodule)

    def predict(self, model, datamodule, ckpt_path=None, **options):
        """Ask the predictor; a checkpoint is the ensemble's."""
        if ckpt_path is not None:
            checkpoint = torch.load(ckpt_path, weights_only=True)
            model.on_load_checkpoint(checkpoint)
            model.load_state_dict(checkpoint["state_dict"])
        predictor = self._get(self.config_init, "predictor")
        answers = torch.cat(self.trainer.predict(predictor, datamodule=datamodule))
        print(f"answers: {answers.tolist()}")
        print(predictor.status())


def of_records(data: PrivateDigits):
    return th.fingerprint(data.train_set)


def main(args=None):
    PrivateCLI(PartitionedEnsemble, PrivateDigits, args=args)


if __name__ == "__main__":
    main()
