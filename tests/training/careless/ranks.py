"""Patterns that two ranks run."""

from training.careless.patterns import register, small

CHOSEN = (
    "logged-log",
    "logged-log_of_super",
    "logged-callback_on_validation_batch_end",
    "kept-list_of_means",
    "places-global_list",
    "written-buffer_by_add",
    "read-item",
    "metrics-updated",
    "callbacks-prediction_writer",
)
only_on_rank_zero = []
careless = register(only_on_rank_zero, net="two")


@careless("losses")
def kept_on_rank_zero(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if self.trainer.is_global_zero:
                self.losses.append(loss.mean())  # <-

    return Net(losses=[])


@careless()
def read_on_rank_zero(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            if self.trainer.is_global_zero:
                print(loss.mean().item())  # <-

    return Net()
