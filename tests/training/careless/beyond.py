"""Ways out that neither net can see: declared in docs/guarantees.md, not caught.

Most need code that means to go round the tensor. What people may write by accident is code that
runs only in a later batch or epoch, and counts by shapes.
"""

import subprocess
import sys

import torch

from training.careless.patterns import X, Y, register, small

PATTERNS = []
beyond = register(PATTERNS, net="none")


@torch.jit.script
def scripted_mean(values: torch.Tensor) -> torch.Tensor:
    return values.mean()


@beyond()
def scripted_function(pl):
    """A scripted or foreign function gives plain tensors; the guard says so for a whole step."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = scripted_mean(loss)

        def later(self):
            return self.kept

    return Net()


@beyond()
def result_of_vmap(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = torch.vmap(torch.abs)(loss)

        def later(self):
            return self.kept.mean()

    return Net()


@beyond()
def marks_turned_off(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with torch._C.DisableTorchFunctionSubclass():
                self.kept = float(loss.mean())

        def later(self):
            return self.kept

    return Net()


@beyond()
def whole_numbers_of_the_batch_alone(pl):
    """Lengths, masks and labels may be read: code has to. They do not depend on the model."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = [number + 0 for number in (batch[1] * 2**24).long().tolist()]

        def later(self):
            return self.kept[0] / 2**24

    return Net()


@beyond()
def sizes_of_filtered_tensors(pl):
    """How many examples pass a test is a shape, which ordinary code must be able to ask for."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            levels = torch.arange(2**22) / 2**22
            self.kept = len(levels[levels < loss.mean()]) / 2**22

        def later(self):
            return self.kept

    return Net()


@beyond()
def the_dataset_itself(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = float(self.trainer.val_dataloaders.dataset.tensors[1].mean())

        def later(self):
            return self.kept

    return Net()


@beyond()
def a_global_copy_of_the_data(pl):
    class Net(small(pl)):
        def on_train_epoch_end(self):
            self.log("late", self.loss((X, Y)).mean())

    return Net()


@beyond()
def a_program_that_reads_the_data(pl):
    class Net(small(pl)):
        def on_train_epoch_end(self):
            code = f"print(sum({Y.tolist()}) / {len(Y)})"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            self.log("late", float(found.stdout))

    return Net()


@beyond()
def only_in_a_later_batch(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            loss = self.loss(batch)
            if batch_idx == 1 and self.global_step:
                self.kept = loss.mean()
            return {"val_loss": loss}

        def later(self):
            return self.kept

    return Net()


@beyond()
def only_in_a_later_epoch(pl):
    class Net(small(pl)):
        kept = None

        def careless(self, batch, loss):
            if self.current_epoch:
                self.kept = loss.mean()

        def later(self):
            return self.kept

    return Net()
