"""Ways out that neither net can see: declared in docs/guarantees.md, not caught.

Each needs code that means to go round the tensor: none is something people write by accident.
"""

import ctypes
import subprocess
import sys

import numpy as np
import torch

from training.careless.patterns import X, Y, register, small

PATTERNS = []
beyond = register(PATTERNS, net="none")


@beyond()
def dlpack_capsule(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(loss))

        def later(self):
            return self.kept.mean()

    return Net()


@beyond()
def raw_pointer(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            address = ctypes.cast(loss.data_ptr(), ctypes.POINTER(ctypes.c_float))
            self.kept = np.ctypeslib.as_array(address, (len(loss),)).copy()

        def later(self):
            return self.kept.mean()

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
