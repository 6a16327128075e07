"""Values kept elsewhere than in the module's own attributes."""

from types import SimpleNamespace

from torch import nn

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="two")
HISTORY = []
STORE = {}


@careless("HISTORY")
def global_list(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            HISTORY.append(loss.mean())  # <-

        def later(self):
            return HISTORY[-1]

    HISTORY.clear()
    return Net()


@careless("LATEST")
def global_name(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            global LATEST
            LATEST = loss.mean()  # <-

        def later(self):
            return LATEST

    return Net()


@careless("STORE")
def global_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            STORE["val", self.current_epoch] = loss.mean()  # <-

        def later(self):
            return STORE["val", self.current_epoch]

    STORE.clear()
    return Net()


@careless("history")
def class_attribute(pl):
    class Net(small(pl)):
        history = []  # noqa: RUF012

        def careless(self, batch, loss):
            self.history.append(loss.mean())  # <-

        def later(self):
            return self.history[-1]

    return Net()


@careless("latest")
def attribute_of_the_class(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            type(self).latest = loss.mean()  # <-

        def later(self):
            return self.latest

    return Net()


@careless("closure_list")
def closure_list(pl):
    remembered = []

    class Net(small(pl)):
        def careless(self, batch, loss):
            remembered.append(loss.mean())  # <-

        def later(self):
            return remembered[-1]

    return Net()


@careless("closure_name")
def closure_name(pl):
    remembered = None

    class Net(small(pl)):
        def careless(self, batch, loss):
            nonlocal remembered
            remembered = loss.mean()  # <-

        def later(self):
            return remembered

    return Net()


@careless("careless")
def default_argument(pl):
    class Net(small(pl)):
        def careless(self, batch, loss, seen=[]):  # noqa: B006
            seen.append(loss.mean())  # <-
            self.count = len(seen)

        def later(self):
            return self.careless.__func__.__defaults__[0][-1]

    return Net()


@careless("calls")
def function_attribute(pl):
    def remember(value):
        remember.calls = value

    class Net(small(pl)):
        def careless(self, batch, loss):
            remember(loss.mean())  # <-

        def later(self):
            return remember.calls

    return Net()


@careless("Tracker.total")
def helper_object(pl):
    class Tracker:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def add(self, value):
            self.total, self.count = self.total + value, self.count + 1

    class Net(small(pl)):
        def on_validation_epoch_start(self):
            self.tracker = Tracker()

        def careless(self, batch, loss):
            self.tracker.add(loss.mean())

        def later(self):
            return self.tracker.total / self.tracker.count

    return Net()


@careless("value")
def helper_with_slots(pl):
    class Slot:
        __slots__ = ("value",)

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.slot.value = loss.mean()  # <-

        def later(self):
            return self.slot.value

    return Net(slot=Slot())


@careless("history")
def three_levels_deep(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.state.meters["val"].history.append({"loss": loss.mean()})  # <-

        def later(self):
            return self.state.meters["val"].history[-1]["loss"]

    return Net(state=SimpleNamespace(meters={"val": SimpleNamespace(history=[])}))


@careless("loss_of_last_call")
def submodule(pl):
    class Loss(nn.Module):
        def forward(self, value):
            self.loss_of_last_call = value.mean()  # <-
            return value

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.criterion(loss)

        def later(self):
            return self.criterion.loss_of_last_call

    return Net(criterion=Loss())


@careless("activation")
def submodule_keeping_activations(pl):
    class Block(nn.Linear):
        def forward(self, x):
            if not self.training:
                self.activation = x.mean()  # <-
            return super().forward(x)

    class Net(small(pl)):
        def later(self):
            return self.layer.activation

    net = Net()
    net.layer = Block(4, 1)
    return net


@careless("activations")
def forward_hook(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__(activations=[])
            self.layer.register_forward_hook(self.keep)

        def keep(self, module, inputs, output):
            if not self.training:
                self.activations.append(inputs[0].mean())  # <-

        def later(self):
            return self.activations[-1]

    return Net()


@careless("forward_hook_with_a_closure")
def forward_hook_with_a_closure(pl):
    net = small(pl)()
    captured = {}

    def capture(module, inputs, output):
        if not module.training:
            captured["layer"] = inputs[0].mean()  # <-

    net.layer.register_forward_hook(capture)
    net.later = lambda: captured["layer"]
    return net
