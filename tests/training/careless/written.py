"""Values written in place, into something that was there before."""

import numpy as np
import torch

from training.careless.patterns import BATCH, register, small

PATTERNS = []
careless = register(PATTERNS, net="two")


def buffered(pl, write, start, read=lambda kept: kept):
    """A module with a buffer ``kept``, and ``write`` as its careless part."""

    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", start)

        def careless(self, batch, loss):
            write(self.kept, loss)

        def later(self):
            return read(self.kept.clone())

    return Net()


@careless("kept")
def buffer_by_index(pl):
    def write(kept, loss):
        kept[0] = loss.mean()  # <-

    return buffered(pl, write, torch.zeros(3), lambda kept: kept[0])


@careless("kept")
def buffer_by_slice(pl):
    def write(kept, loss):
        kept[:BATCH] = loss  # <-

    return buffered(pl, write, torch.zeros(BATCH), lambda kept: kept.mean())


@careless("kept")
def buffer_by_mask(pl):
    def write(kept, loss):
        kept[loss > 0] = loss  # <-

    return buffered(pl, write, torch.zeros(BATCH), lambda kept: kept.mean())


@careless("kept")
def buffer_by_copy(pl):
    def write(kept, loss):
        kept.copy_(loss.mean())  # <-

    return buffered(pl, write, torch.zeros(()))


@careless("kept")
def buffer_by_add(pl):
    def write(kept, loss):
        kept.zero_().add_(loss.sum())  # <-

    return buffered(pl, write, torch.zeros(()))


@careless("kept")
def buffer_by_fill(pl):
    def write(kept, loss):
        kept.fill_(loss.mean())  # <-

    return buffered(pl, write, torch.zeros(()))


@careless("kept")
def buffer_by_lerp(pl):
    def write(kept, loss):
        kept.lerp_(loss.mean(), 1.0)  # <-

    return buffered(pl, write, torch.zeros(()))


@careless("kept")
def buffer_by_out(pl):
    def write(kept, loss):
        torch.mean(loss, dim=0, out=kept)  # <-

    return buffered(pl, write, torch.zeros(()))


@careless("kept")
def buffer_by_index_put(pl):
    def write(kept, loss):
        kept.index_put_((torch.tensor([1]),), loss.mean())  # <-

    return buffered(pl, write, torch.zeros(3), lambda kept: kept[1])


@careless("kept")
def buffer_by_scatter(pl):
    def write(kept, loss):
        kept.scatter_(0, torch.arange(len(loss)), loss)  # <-

    return buffered(pl, write, torch.zeros(BATCH), lambda kept: kept.mean())


@careless()
def buffer_by_data(pl):
    def write(kept, loss):
        kept.data = loss.mean()  # <-

    return buffered(pl, write, torch.zeros(()))


@careless()
def buffer_by_set(pl):
    def write(kept, loss):
        kept.set_(loss.mean())  # <-

    return buffered(pl, write, torch.zeros(()))


@careless()
def buffer_by_a_view(pl):
    def write(kept, loss):
        row = kept.zero_().view(2, -1)[1]
        row += loss.mean()  # <-

    return buffered(pl, write, torch.zeros(4), lambda kept: kept[2])


@careless("val_sum")
def buffer_augmented(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.register_buffer("val_sum", torch.zeros(()))

        def on_validation_epoch_start(self):
            self.val_sum.zero_()

        def careless(self, batch, loss):
            self.val_sum += loss.sum()  # <-

        def later(self):
            return self.val_sum.clone()

    return Net()


@careless("center")
def buffer_assigned(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.register_buffer("center", torch.zeros(4))

        def careless(self, batch, loss):
            self.center = batch[0].mean(0)  # <-

        def later(self):
            return self.center.mean()

    return Net()


@careless("bias")
def parameter(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with torch.no_grad():
                self.layer.bias.copy_(loss.mean())  # <-

        def on_validation_end(self):
            self.kept = float(self.layer.bias)

        def later(self):
            return self.kept

    return Net()


@careless("values")
def plain_tensor(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.values[self.index % 2] = loss.mean()  # <-
            self.index += 1

        def later(self):
            return self.values[0]

    return Net(values=torch.zeros(2), index=0)


@careless("totals")
def tensor_in_a_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.totals["loss"][0].mul_(0).add_(loss.sum())  # <-

        def later(self):
            return self.totals["loss"][0].clone()

    return Net(totals={"loss": [torch.zeros(())]})


@careless()
def array_by_index(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.array[0] = loss.mean()  # <-

        def later(self):
            return self.array[0]

    return Net(array=np.zeros(2))


@careless()
def array_by_slice(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.array[:BATCH] = loss.cpu().numpy()  # <-

        def later(self):
            return self.array.mean()

    return Net(array=np.zeros(BATCH))


@careless("norm", raises="WeightsChangedError")
def batch_norm_left_in_training(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4, momentum=1.0)

        def careless(self, batch, loss):
            self.norm.train()
            self.norm(batch[0])

        def later(self):
            return self.norm.running_mean.mean()

    return Net()
