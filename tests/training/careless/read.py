"""Values that careless code reads on the host, as numbers or arrays, and decides on."""

import ctypes
import math
import statistics
import threading

import numpy as np
import torch

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="two")


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
def by_as_tensor(loss):
    return torch.as_tensor(loss.mean(), dtype=torch.float64).numpy()  # <-


@keeps
def by_asarray(loss):
    return torch.asarray(loss, copy=True).numpy()  # <-


@keeps
def by_a_parameter(loss):
    return torch.nn.Parameter(loss.clone(), requires_grad=False).numpy()  # <-


@keeps
def by_another_class(loss):
    return loss.as_subclass(torch.Tensor).mean().item()  # <-


@keeps
def by_collating(loss):
    return torch.utils.data.default_collate([loss, loss]).mean().item()  # <-


@keeps
def by_dlpack(loss):
    return np.from_dlpack(loss).copy()  # <-


@keeps
def by_a_dlpack_capsule(loss):
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(loss.clone()))


@keeps
def by_a_pointer(loss):
    address = ctypes.cast(loss.data_ptr(), ctypes.POINTER(ctypes.c_float))  # <-
    return np.ctypeslib.as_array(address, (len(loss),)).copy()


@keeps
def by_mapping_a_tree(loss):
    return torch.utils._pytree.tree_map(float, {"loss": loss.mean()})["loss"]  # <-


@keeps
def by_mapping_elements(loss):
    values = []
    loss.clone().apply_(lambda value: values.append(value) or value)  # <-
    return values


@keeps
def by_a_numpy_scalar(loss):
    return np.float64(0.0) + loss.mean()  # <-


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
