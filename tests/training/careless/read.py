"""Values that careless code reads on the host: as numbers, as text, as arrays, into files."""

import csv
import io
import json
import logging
import math
import multiprocessing
import pickle
import statistics
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="two")
LOG = logging.getLogger("careless")


def folder(module):
    """Where a module writes files of its own."""
    path = Path(module.trainer.default_root_dir)
    path.mkdir(parents=True, exist_ok=True)
    return path


def keeps(read):
    """Register a pattern whose ``read`` returns a number, or several, that the module keeps."""

    def build(pl):
        class Net(small(pl)):
            def careless(self, batch, loss):
                self.kept = read(loss)

            def later(self):
                return np.mean(self.kept)

        return Net()

    build.__name__, build.shows = read.__name__, read
    careless()(build)
    return read


@keeps
def item(loss):
    return loss.mean().item()  # <-


@keeps
def tolist(loss):
    return loss.tolist()  # <-


@keeps
def numpy(loss):
    return loss.numpy()  # <-


@keeps
def numpy_of_detached(loss):
    return loss.detach().cpu().numpy().copy()  # <-


@keeps
def numpy_array(loss):
    return np.asarray(loss)  # <-


@keeps
def numpy_function(loss):
    return np.average(loss)  # <-


@keeps
def as_float(loss):
    return float(loss.mean())  # <-


@keeps
def as_int(loss):
    return int(loss.sum() * 1e6) / 1e6  # <-


@keeps
def rounded(loss):
    return round(loss.mean().item(), 7)  # <-


@keeps
def by_iteration(loss):
    return [float(value) for value in loss]  # <-


@keeps
def built_in_sum(loss):
    return float(sum(loss) / len(loss))  # <-


@keeps
def standard_mean(loss):
    return statistics.fmean(loss)  # <-


@keeps
def untracked_item(loss):
    return loss.data.mean().item()  # <-


@keeps
def by_storage(loss):
    return list(loss.contiguous().untyped_storage())[:1] and loss.contiguous().storage()[0]  # <-


@keeps
def by_a_new_tensor(loss):
    return torch.tensor(loss.mean()).numpy()  # <-


@keeps
def by_a_legacy_constructor(loss):
    return torch.FloatTensor([loss.mean()]).numpy()  # <-


@keeps
def by_from_numpy(loss):
    return torch.from_numpy(loss.numpy()).mean().item()  # <-


@keeps
def swallowed(loss):
    try:
        return loss.mean().item()  # <-
    except Exception:
        return 0.0


@keeps
def in_a_thread(loss):
    found = []
    thread = threading.Thread(target=lambda: found.append(loss.mean().item()))  # <-
    thread.start()
    thread.join()
    return found or [0.0]


@keeps
def as_text(loss):
    return float(f"{loss.mean():.7f}")  # <-


@keeps
def as_format(loss):
    return float("{:.7f}".format(loss.mean()))  # <-  # noqa: UP032


@keeps
def as_percent_format(loss):
    return float("%.7f" % loss.mean())  # <-  # noqa: UP031


# ---- decisions on the value


@careless(leaks=False)
def decision_with_an_if(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if loss.mean() < 0.5:  # <-
                self.good = True

    return Net()


@careless(leaks=False)
def decision_with_isnan(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if math.isnan(loss.mean()):  # <-
                raise ZeroDivisionError

    return Net()


@careless(leaks=False)
def decision_with_any(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if torch.isnan(loss).any():  # <-
                self.broken = True

    return Net()


@careless(leaks=False)
def decision_with_an_assertion(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            assert loss.mean() < 10  # <-

    return Net()


@careless(leaks=False)
def decision_with_equal(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.same = torch.equal(loss, self.reference)  # <-

    return Net(reference=torch.zeros(8))


@careless(leaks=False)
def decision_with_allclose(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.same = torch.allclose(loss, self.reference)  # <-

    return Net(reference=torch.zeros(8))


@careless()
def best_with_max(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.best = max(self.best, loss.mean())  # <-

        def later(self):
            return self.best

    return Net(best=0.0)


@careless()
def sorted_values(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.worst = sorted(loss)[-1]  # <-

        def later(self):
            return self.worst

    return Net()


@careless()
def learning_rate_by_hand(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            for group in self.optimizers().param_groups:
                group["lr"] = 0.01 * loss.mean().item()  # <-

        def later(self):
            return self.optimizers().param_groups[0]["lr"] * 100

    return Net()


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
