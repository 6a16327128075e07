"""How often an evaluation waits for the device: the guard, ``self.log`` and ``MeanMetric``.

Counted, not timed: every read of a tensor that was computed from the weights or the batches.
"""

import tempfile

import torch
from _host_reads import HostReads
from _measure import asked_quick, report
from torch import Tensor
from validation_epoch import Epoch, contenders, silence

BATCH = 20


def tensors(epoch: Epoch) -> list[Tensor]:
    """Return what would live on the device: weights and batches."""
    batches = [tensor for batch in epoch.data for tensor in batch]
    return [*epoch.module.parameters(), *epoch.module.buffers(), *batches]


def reads(epoch: Epoch) -> int:
    """Count the reads of one evaluation, after one that is not counted."""
    epoch()
    # The weights go back to the host when a run ends; that is not part of an evaluation.
    epoch.trainer.strategy.teardown = lambda: None  # type: ignore[method-assign]
    with HostReads(tensors(epoch)) as counter:
        epoch()
    return counter.count


def main() -> None:
    """Print one JSON line per comparison."""
    asked_quick(__doc__)
    silence()
    torch.set_num_threads(1)
    for batches in (1, 10, 500):
        with tempfile.TemporaryDirectory() as folder:
            found = {n: reads(e) for n, e in contenders(BATCH * batches, BATCH, folder).items()}
        ours = found.pop("guarded")
        case = f"{batches} batch{'es' if batches > 1 else ''}"
        for peer, theirs in found.items():
            report("host_reads", case=case, peer=peer, ours=ours, theirs=theirs, unit="reads")


if __name__ == "__main__":
    main()
