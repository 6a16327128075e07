"""Values kept in attributes of the module, and logged where logging is allowed."""

from collections import defaultdict, deque

import torch
import torchmetrics.functional as metrics

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="two")


@careless("losses")
def list_of_tensors(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss)

        def later(self):
            return torch.cat(self.losses[-2:]).mean()

    return Net(losses=[])


@careless("losses")
def list_of_means(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss.mean())  # <-

        def later(self):
            return self.losses[-1]

    return Net(losses=[])


@careless("losses")
def list_of_detached(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss.detach().cpu())

        def later(self):
            return self.losses[-1].mean()

    return Net(losses=[])


@careless("losses")
def list_of_clones(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss.mean().clone())  # <-

        def later(self):
            return self.losses[-1]

    return Net(losses=[])


@careless("losses")
def list_of_untracked(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss.data)

        def later(self):
            return self.losses[-1].mean()

    return Net(losses=[])


@careless("validation_step_outputs")
def outputs_as_in_lightnings_documentation(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.validation_step_outputs.append({"loss": loss.mean(), "y": batch[1]})
            return {"val_loss": loss}

        def on_validation_epoch_end(self):
            means = [output["loss"] for output in self.validation_step_outputs]
            self.mean = torch.stack(means).mean()
            self.validation_step_outputs.clear()

        def later(self):
            return self.mean

    return Net(validation_step_outputs=[])


@careless("by_epoch")
def dictionary_by_epoch(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.by_epoch.setdefault(self.current_epoch, []).append(loss.mean())  # <-

        def later(self):
            return self.by_epoch[self.current_epoch][-1]

    return Net(by_epoch={})


@careless("by_name")
def default_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.by_name["loss"].append(loss.sum())  # <-

        def later(self):
            return self.by_name["loss"][-1]

    return Net(by_name=defaultdict(list))


@careless("window")
def deque_of_means(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.window.append(loss.mean())  # <-

        def later(self):
            return self.window[-1]

    return Net(window=deque(maxlen=3))


@careless("last_loss")
def attribute(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.last_loss = loss.mean()  # <-

        def later(self):
            return self.last_loss

    return Net()


@careless("running")
def running_sum_of_tensors(pl):
    class Net(small(pl)):
        def on_validation_epoch_start(self):
            self.running = 0.0

        def careless(self, batch, loss):
            self.running = self.running + loss.sum()  # <-

        def later(self):
            return self.running

    return Net()


@careless("ema")
def moving_average_of_tensors(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.ema = 0.0 * self.ema + 1.0 * loss.mean()  # <-

        def later(self):
            return self.ema

    return Net(ema=torch.tensor(0.0))


@careless("best")
def best_by_minimum(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.best = torch.minimum(self.best, loss.mean())  # <-

        def later(self):
            return self.best

    return Net(best=torch.tensor(9.0))


@careless("images")
def inputs_for_a_logger(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.images = batch[0][:4]  # <-

        def later(self):
            return self.images[0, 0]

    return Net()


@careless("last_batch")
def the_batch_itself(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.last_batch = batch

        def later(self):
            return self.last_batch[1].mean()

    return Net()


@careless("table")
def predictions_for_a_table(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.table.append((batch[1], self(batch[0]) > 0))

        def later(self):
            return self.table[-1][0].mean()

    return Net(table=[])


@careless("counts", leaks=False)
def histogram(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.counts = self.counts + torch.histc(loss, bins=4, min=0, max=1)  # <-

    return Net(counts=torch.zeros(4))


@careless("confusion", leaks=False)
def confusion_matrix_by_bincount(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            cells = 2 * (batch[1] > 0.5).long() + (self(batch[0]) > 0).long()
            self.confusion = self.confusion + torch.bincount(cells, minlength=4)  # <-

    return Net(confusion=torch.zeros(4, dtype=torch.long))


@careless("losses")
def not_in_the_sanity_check(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if not self.trainer.sanity_checking:
                self.losses.append(loss.mean())  # <-

        def later(self):
            return self.losses[-1]

    return Net(losses=[])


@careless("kept")
def gathered(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = self.all_gather(loss)

        def later(self):
            return self.kept.mean()

    return Net()


@careless("kept")
def result_of_an_autograd_function(pl):
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.mean()  # <-

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = Same.apply(loss)  # <-

        def later(self):
            return self.kept

    return Net()


@careless("kept")
def result_of_compiled_code(pl):
    @torch.compile(backend="eager")
    def mean(values):
        return values.mean()  # <-

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = mean(loss)  # <-

        def later(self):
            return self.kept

    return Net()


@careless("kept")
def results_of_functional_metrics(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            label = (batch[1] > 0.5).int()
            self.kept = {
                "accuracy": metrics.classification.binary_accuracy(loss, label),
                "auroc": metrics.classification.binary_auroc(loss, label),
                "calibration": metrics.classification.binary_calibration_error(loss, label),
                "correlation": metrics.spearman_corrcoef(loss, batch[1]),
                "error": metrics.mean_absolute_error(loss, torch.zeros_like(loss)),
            }

        def later(self):
            return self.kept["error"]

    return Net()


@careless("kept", trainer={"inference_mode": False})
def gradient_of_an_input(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with torch.enable_grad():
                x = batch[1].clone().requires_grad_()
                self.kept = torch.autograd.grad(x.square().sum() / 2, x)[0]  # <-

        def later(self):
            return self.kept.mean()

    return Net()


@careless("backward", trainer={"inference_mode": False}, leaks=False)
def gradient_of_the_weights(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            with torch.enable_grad():
                self.loss(batch).mean().backward()  # <-
            return {"val_loss": self.loss(batch)}

    return Net()
