"""Ordinary modules: memory banks, several optimisers, and steps that draw random numbers."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from training.careless.cases import noise, plain, register

CASES = []
ordinary = register(CASES)


@ordinary
def nearest_neighbours_of_a_memory_bank(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.register_buffer("bank", noise(8, 4, seed=3))
            self.register_buffer("bank_labels", torch.arange(8) % 3)

        def training_step(self, batch, batch_idx):
            self.bank = torch.cat([batch[0].detach(), self.bank])[:8]
            self.bank_labels = torch.cat([batch[1], self.bank_labels])[:8]
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            x, y = batch
            nearest = torch.cdist(x, self.bank).topk(3, largest=False).indices
            votes = functional.one_hot(self.bank_labels[nearest], 3).sum(1).float()
            return {"val_loss": (votes.argmax(1) != y).float()}

    return Net()


@ordinary
def generative_adversarial_network(pl):
    class Net(plain(pl)):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def make(self):
            self.generator, self.critic = nn.Linear(2, 4), nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            fake = self.generator(torch.randn(len(batch[0]), 2))
            for optimizer, loss in (
                (first, -self.critic(fake).mean()),
                (second, (self.critic(fake.detach()) - self.critic(batch[0])).mean()),
            ):
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

        def losses(self, batch):
            fake = self.generator(torch.randn(len(batch[0]), 2, device=batch[0].device))
            return (fake - batch[0]).square().mean(1) + self.critic(batch[0]).sigmoid()[:, 0]

        def configure_optimizers(self):
            parts = (self.generator, self.critic)
            return [torch.optim.Adam(part.parameters(), lr=0.01) for part in parts], []

    return Net()


@ordinary
def variational_autoencoder(pl):
    class Net(plain(pl)):
        def make(self):
            self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)

        def losses(self, batch):
            x = batch[0]
            mean, log_variance = self.encoder(x).chunk(2, -1)
            z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
            divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)
            return functional.mse_loss(self.decoder(z), x, reduction="none").sum(-1) + divergence

    return Net()


@ordinary
def diffusion(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Linear(5, 4)
            self.register_buffer("alphas", torch.linspace(1.0, 0.1, 10))

        def losses(self, batch):
            x = batch[0]
            t = torch.randint(0, 10, (len(x),), device=x.device)
            added, alpha = torch.randn_like(x), self.alphas[t][:, None]
            noisy = alpha.sqrt() * x + (1 - alpha).sqrt() * added
            guess = self.net(torch.cat([noisy, t[:, None] / 10], 1))
            return (guess - added).square().mean(1)

    return Net()


@ordinary
def distributions(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Linear(4, 6)

        def losses(self, batch):
            mean, scale = self.net(batch[0]).chunk(2, -1)
            law = torch.distributions.Normal(mean, functional.softplus(scale) + 1e-3)
            prior = torch.distributions.Categorical(logits=mean)
            negative = -law.log_prob(batch[0][:, :3]).mean(-1) - prior.log_prob(batch[1])
            return negative.clamp(0, 8)

    return Net()


@ordinary
def random_views_by_every_generator(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, y = batch
            shift = random.random() + np.random.rand()
            x = x + shift * torch.rand(x.shape[1])
            return super().losses((x[:, torch.randperm(x.shape[1])], y))

    return Net()


@ordinary
def generator_of_its_own(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.draws = torch.Generator().manual_seed(5)

        def losses(self, batch):
            x, y = batch
            keep = torch.bernoulli(torch.full(x.shape, 0.8), generator=self.draws)
            return super().losses((x * keep, y))

    return Net()


@ordinary
def mixture_of_experts(pl):
    class Net(plain(pl)):
        def make(self):
            self.router = nn.Linear(4, 3)
            self.experts = nn.ModuleList([nn.Linear(4, 3) for _ in range(3)])

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2)
            out = x.new_zeros(len(x), 3)
            for n, expert in enumerate(self.experts):
                rows, slot = torch.where(chosen == n)
                if rows.numel() == 0:
                    continue
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, slot, None])
            return out

    return Net()


@ordinary
def decoding_for_a_fixed_number_of_steps(pl):
    class Net(plain(pl)):
        def make(self):
            self.cell, self.head, self.words = nn.GRUCell(4, 4), nn.Linear(4, 3), nn.Embedding(3, 4)

        def forward(self, x):
            cache, state, token = {}, x, torch.zeros(len(x), dtype=torch.long)
            for step in range(3):
                state = self.cell(self.words(token), state)
                cache[step] = self.head(state)
                token = cache[step].argmax(-1)
            return torch.stack(list(cache.values())).mean(0)

    return Net()
