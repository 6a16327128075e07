"""AUROC behind the door: by blocks, and how far that is from the AUROC of everything.

AUROC is not a mean over examples, so the holdout is cut into blocks and the mean over the blocks is
guarded. Few large blocks are near the whole and certify little; many small ones certify more and
drift away, because some have one class only.

    python examples/blockwise_auroc.py    # a few seconds; leaves no files

Look at the last two columns: the answer leaves the true AUROC as the certificate gets narrower. It
prints:

    AUROC of all 20000 examples: 0.7565

    blocks  examples each  answer  certified within
        20           1000  0.7560  0.343
        50            400  0.7560  0.217
       200            100  0.7570  0.109
      1000             20  0.7410  0.049
      2000             10  0.6680  0.035
"""

import argparse

import torch
import torch_holdout as th
from torchmetrics.classification import BinaryAUROC


def scores(size, rate):
    """Scores of a mediocre classifier, and labels of which a part is positive."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(size, generator=generator) < rate).long()
    return torch.sigmoid(target + torch.randn(size, generator=generator)), target


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--positive", type=float, default=0.2)
    arguments = parser.parse_args()
    preds, target = scores(arguments.size, arguments.positive)
    whole = BinaryAUROC()
    whole.update(preds, target)
    print(f"AUROC of all {arguments.size} examples: {float(whole.compute()):.4f}\n")
    print("blocks  examples each  answer  certified within")
    for blocks in (20, 50, 200, 1000, 2000):
        holdout = th.ReusableHoldout(
            "memory://",
            name=f"{blocks} blocks",
            size=arguments.size,
            statistics={"auroc": th.Blockwise(BinaryAUROC(), blocks, low=0.0, high=1.0)},
            mechanism=th.Ladder(step=0.01),
            budget=5,
            grid=1000,
        )
        metric = th.ReusableHoldoutMetric(holdout, "auroc")
        for part in zip(preds.split(1000), target.split(1000), strict=True):
            metric.update(*part)
        answer, claim = float(metric.compute()), holdout.certificate()
        each = arguments.size // blocks
        print(f"{blocks:6}  {each:13}  {answer:.4f}  {claim.tolerance:.3f}")
    print("\nThe certificate is about the expected AUROC of a block of that size.")


if __name__ == "__main__":
    main()
