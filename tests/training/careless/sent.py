"""Values that careless code says, writes to files or sends to a logger."""

import csv
import io
import json
import logging
import multiprocessing
import pickle
import sys
import warnings

import numpy as np
import torch
from tqdm import tqdm

from training.careless.patterns import folder, register, small

PATTERNS = []
careless = register(PATTERNS, net="two")
LOG = logging.getLogger("careless")


# ---- said


@careless(leaks=False)
def printed(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            print("val loss", loss.mean())  # <-

    return Net()


@careless(leaks=False)
def printed_by_lightning(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.print(loss.mean())  # <-

    return Net()


@careless(leaks=False)
def logged_with_percent(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            LOG.error("val loss %s", loss.mean())  # <-

    return Net()


@careless(leaks=False)
def logged_with_an_f_string(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            LOG.info(f"val loss {loss.mean():.4f}")  # <-

    return Net()


@careless(leaks=False)
def warned(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            warnings.warn(f"high loss: {loss.mean()}", stacklevel=1)  # <-

    return Net()


@careless(leaks=False)
def raised(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            raise ValueError(f"loss {loss.mean()}")  # <-

    return Net()


@careless(leaks=False)
def compared_by_assert_close(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            torch.testing.assert_close(loss, torch.zeros_like(loss))  # <-

    return Net()


@careless(leaks=False)
def progress_bar(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with tqdm(total=1, file=io.StringIO()) as bar:
                bar.set_postfix(loss=loss.mean())  # <-

    return Net()


# ---- written to files


@careless(leaks=False)
def csv_file(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with (folder(self) / "losses.csv").open("a") as file:
                csv.writer(file).writerow([self.current_epoch, loss.mean().item()])  # <-

    return Net()


@careless(leaks=False)
def csv_file_of_tensors(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with (folder(self) / "losses.csv").open("a") as file:
                csv.writer(file).writerow([loss.mean()])  # <-

    return Net()


@careless(leaks=False)
def json_file(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with (folder(self) / "losses.json").open("w") as file:
                json.dump({"loss": loss.tolist()}, file)  # <-

    return Net()


@careless(leaks=False)
def pickle_file(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            with (folder(self) / "losses.pkl").open("wb") as file:
                pickle.dump(loss, file)  # <-

    return Net()


@careless(leaks=False)
def torch_file(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            torch.save({"loss": loss}, folder(self) / "losses.pt")  # <-

    return Net()


@careless("outs")
def torch_file_at_the_epoch_end(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.outs.append(loss)

        def on_validation_epoch_end(self):
            torch.save(self.outs, folder(self) / "outs.pt")

        def later(self):
            return self.outs[-1].mean()

    return Net(outs=[])


@careless(leaks=False)
def numpy_file(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            np.save(folder(self) / "losses.npy", loss)  # <-

    return Net()


@careless()
def data_frame(pl):
    import pandas as pd

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.table = pd.DataFrame({"y": batch[1].numpy(), "loss": loss.numpy()})  # <-

        def later(self):
            return self.table["loss"].mean()

    return Net()


@careless(leaks=False)
def confusion_matrix_of_sklearn(pl):
    from sklearn.metrics import confusion_matrix

    class Net(small(pl)):
        def careless(self, batch, loss):
            predicted = (self(batch[0]) > 0).cpu().numpy()  # <-
            self.matrix = self.matrix + confusion_matrix(
                (batch[1] > 0.5).cpu().numpy(), predicted, labels=[False, True]
            )

    return Net(matrix=np.zeros((2, 2)))


@careless()
def scipy_function(pl):
    from scipy.stats import tmean

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.mean = tmean(loss)  # <-

        def later(self):
            return self.mean

    return Net()


@careless(leaks=False)
def queue_of_another_process(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            queue = multiprocessing.get_context("spawn").SimpleQueue()
            queue.put(loss.mean())  # <-
            queue.close()

    return Net()


# ---- sent to a logger


@careless()
def logger_metrics(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.logger.log_metrics({"mean": loss.mean().item()}, step=self.global_step)  # <-

    return Net()


@careless()
def logger_metrics_of_tensors(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.trainer.logger.log_metrics({"mean": loss.mean()}, step=self.global_step)  # <-

    return Net()


@careless()
def logger_experiment(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            for logger in self.loggers:
                logger.experiment.log_metrics({"mean": loss.mean()}, step=self.global_step)  # <-

    return Net()


@careless(logger="tensorboard")
def logger_scalar(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.logger.experiment.add_scalar("mean", loss.mean(), self.global_step)  # <-

    return Net()


@careless(logger="tensorboard", leaks=False)
def logger_histogram(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.logger.experiment.add_histogram("loss", loss, self.global_step)  # <-

    return Net()


@careless(logger="tensorboard", leaks=False)
def logger_images(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            image = batch[0].sigmoid()[None]
            self.logger.experiment.add_image("inputs", image, self.global_step)  # <-

    return Net()


@careless(logger="tensorboard", leaks=False)
def logger_text(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            text = f"predicted {self(batch[0])}"  # <-
            self.logger.experiment.add_text("sample", text, self.global_step)

    return Net()


@careless()
def logger_hyperparameters(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.logger.log_hyperparams({"final": loss.mean().item()})  # <-

    return Net()


@careless(leaks=False)
def standard_error(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            sys.stderr.write(str(loss))  # <-

    return Net()
