"""Ordinary modules: losses, transforms of functions, compiled and mixed code."""

import torch
import torchmetrics.functional as metrics
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from training.careless.cases import SIZE, Case, loaders, plain, register, sequences, vectors

CASES = []
ordinary = register(CASES)


@ordinary
def label_smoothing_and_class_weights(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.criterion = nn.CrossEntropyLoss(
                weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1, reduction="none"
            )

        def losses(self, batch):
            return self.criterion(self(batch[0]), batch[1])

    return Net()


@ordinary
def quantile_loss(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            error = batch[0][:, :1] - self(batch[0])
            levels = torch.tensor([0.1, 0.5, 0.9], device=error.device)
            return torch.maximum(levels * error, (levels - 1) * error).mean(1)

    return Net()


@ordinary
def connectionist_temporal_classification(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Linear(4, 5)

        def losses(self, batch):
            x, y = batch
            logs = self.net(x).log_softmax(-1).transpose(0, 1)
            steps = torch.full((len(x),), x.shape[1], dtype=torch.long)
            labels = torch.stack([y + 1, y + 2], 1)
            ones = torch.full((len(x),), 2, dtype=torch.long)
            return functional.ctc_loss(logs, labels, steps, ones, reduction="none") / 10

    train, val = loaders(sequences)
    return Case(module=Net(), train=train, val=val)


@ordinary
def divergence_from_a_teacher(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.teacher = nn.Linear(4, 3).requires_grad_(False)

        def losses(self, batch):
            with torch.no_grad():
                target = self.teacher(batch[0]).softmax(-1)
            return functional.kl_div(self(batch[0]).log_softmax(-1), target, reduction="none").sum(
                1
            )

    return Net()


@ordinary
def contrastive_loss(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            first = functional.normalize(self(batch[0]), dim=-1)
            second = functional.normalize(self(batch[0].flip(1)), dim=-1)
            return functional.cross_entropy(
                first @ second.T / 0.1, torch.arange(len(first)), reduction="none"
            )

    return Net()


@ordinary
def metrics_for_each_example(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            predicted, target = self(batch[0]).sigmoid(), functional.one_hot(batch[1], 3)
            if self.training:
                return functional.binary_cross_entropy(predicted, target.float(), reduction="none")
            return 1 - metrics.classification.multilabel_f1_score(
                predicted[..., None].transpose(1, 2).reshape(len(target), 1, 3).transpose(1, 2),
                target[..., None],
                num_labels=3,
                multidim_average="samplewise",
            )

    return Net()


@ordinary
def similarity_by_torchmetrics(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            target = functional.one_hot(batch[1], 3).float()
            alike = metrics.cosine_similarity(self(batch[0]), target, reduction="none")
            return 1 - alike

    return Net()


@ordinary
def training_metrics_in_a_collection(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.scores = MetricCollection(
                [MulticlassAccuracy(num_classes=3), MulticlassF1Score(num_classes=3)],
                prefix="train_",
            )
            self.mean = MeanMetric()

        def training_step(self, batch, batch_idx):
            losses = self.losses(batch)
            self.scores.update(self(batch[0]), batch[1])
            self.mean.update(losses)
            self.log_dict(self.scores, on_epoch=True, on_step=False)
            self.log("train_mean", self.mean)
            return losses.mean()

    return Net()


@ordinary
def custom_autograd_function(pl):
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * (x.abs() < 1)

    class Net(plain(pl)):
        def forward(self, x):
            return self.net(Clipped.apply(x))

    return Net()


@ordinary
def forward_hooks_for_shapes(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.shapes = {}
            for name, layer in self.net.named_children():
                layer.register_forward_hook(self.note(name))

        def note(self, name):
            def hook(module, inputs, output):
                self.shapes[name] = tuple(output.shape), output.dtype

            return hook

    return Net()


@ordinary
def assertions_on_shapes(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, y = batch
            assert x.ndim == 2
            assert x.shape[0] == y.shape[0] == len(y)
            assert not x.requires_grad
            assert y.dtype is torch.long
            assert x.is_floating_point()
            if x.size(-1) != 4:
                raise ValueError(f"Expected 4 features, but got {tuple(x.shape)}")
            return super().losses(batch)

    return Net()


@ordinary
def einsum_and_indexing(pl):
    class Net(plain(pl)):
        def make(self):
            self.weight = nn.Parameter(torch.eye(3, 4))

        def losses(self, batch):
            x, y = batch
            logits = torch.einsum("bi,ci->bc", x, self.weight)
            order = logits.argsort(-1, descending=True)
            margin = logits.gather(1, y[:, None])[:, 0] - logits.gather(1, order[:, :1])[:, 0]
            picked = logits[torch.arange(len(y)), y]
            worst = torch.where(margin < 0, -margin, margin.new_zeros(()))
            return functional.softplus(-picked) + worst

    return Net()


@ordinary
def in_place_on_its_own_results(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x = batch[0].clone()
            x[:, 0] = 0.5
            x *= 2
            scores = torch.zeros(len(x), 3)
            scores += self(x)
            scores[:, 1].add_(1)
            return functional.cross_entropy(scores, batch[1], reduction="none")

    return Net()


@ordinary
def sparse_and_embedding_bags(pl):
    class Net(plain(pl)):
        def make(self):
            self.bag = nn.EmbeddingBag(10, 4, mode="mean")
            self.words, self.head = nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 3)

        def forward(self, x):
            tokens = (x.abs() * 3).long().clamp(0, 9)
            mixed = torch.sparse.mm(torch.eye(4).to_sparse(), self.words(tokens).mean(1).T).T
            return self.head(self.bag(tokens) + mixed)

    return Net()


@ordinary
def vmap_and_gradients_of_inputs(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            weights = dict(self.net.named_parameters())

            def loss(x, y):
                out = functional_call(self.net, weights, (x[None],))
                return functional.cross_entropy(out, y[None])

            if self.training:
                return super().losses(batch)
            values = vmap(loss)(*batch)
            return values + vmap(grad(loss))(*batch).norm(dim=-1)

    return Case(module=Net(), unseen=True)


@ordinary
def gradients_in_validation(pl):
    class Net(plain(pl)):
        def validation_step(self, batch, batch_idx):
            with torch.enable_grad():
                x = batch[0].detach().clone().requires_grad_()
                energy = self(x).sum()
                (force,) = torch.autograd.grad(energy, x)
            return {"val_loss": (force - batch[0]).abs().mean(1)}

    return Case(module=Net(), trainer={"inference_mode": False})


@ordinary
def activation_checkpointing(pl):
    class Net(plain(pl)):
        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=False)

    return Net()


@ordinary
def parametrized_weights(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Sequential(
                nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)), nn.Tanh(),
                nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)),
            )  # fmt: skip

    return Net()


@ordinary
def mixed_precision(pl):
    return Case(module=plain(pl)(), trainer={"precision": "bf16-mixed"})


@ordinary
def true_half_precision(pl):
    return Case(module=plain(pl)(), trainer={"precision": "bf16-true"})


@ordinary
def double_precision(pl):
    return Case(module=plain(pl)(), trainer={"precision": "64-true"})


@ordinary
def autocast_in_the_step(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self(batch[0])
            return functional.cross_entropy(logits.float(), batch[1], reduction="none")

    return Net()


@ordinary
def compiled_submodule(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.net = torch.compile(self.net, backend="eager")

    return Net()


@ordinary
def compiled_by_the_autograd_backend(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.net.compile(backend="aot_eager")

    return Net()


@ordinary
def scripted_submodule(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = torch.jit.script(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))

    return Net()


@ordinary
def spectrum(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Linear(4, 3)

        def forward(self, x):
            spectrum = torch.fft.rfft(x, dim=1).abs().mean(-1)
            return self.net(spectrum)

    train, val = loaders(sequences)
    return Case(module=Net(), train=train, val=val)


@ordinary
def weights_for_each_example(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, weight, y = batch
            return functional.cross_entropy(self(x), y, reduction="none") * weight

    train, val = loaders(vectors, lambda seed: torch.linspace(0, 1, SIZE))
    return Case(module=Net(), train=train, val=val)
