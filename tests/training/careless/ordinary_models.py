"""Ordinary modules: the layers and losses people use."""

import functools
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from training.careless.cases import (
    SIZE,
    Case,
    images,
    loaders,
    plain,
    register,
    sequences,
)

CASES = []
ordinary = register(CASES)


def of_sequences(module):
    train, val = loaders(sequences)
    return Case(module=module, train=train, val=val)


def of_images(module):
    train, val = loaders(images)
    return Case(module=module, train=train, val=val)


@ordinary
def multilayer_perceptron(pl):
    return plain(pl)()


@ordinary
def dropout_left_on(pl):
    class Net(plain(pl)):
        def forward(self, x):
            return self.net(functional.dropout(x, 0.5, training=True))

    return Net()


@ordinary
def convolutions_with_batch_norm(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
            )  # fmt: skip

    return of_images(Net())


@ordinary
def other_norms_and_activations(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.InstanceNorm2d(4), nn.SiLU(),
                nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(36), nn.PReLU(), nn.Linear(36, 3),
            )  # fmt: skip

    return of_images(Net())


@ordinary
def segmentation(pl):
    class Net(plain(pl)):
        def make(self):
            self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
            self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)

        def losses(self, batch):
            image = batch[0]
            mask = (image[:, 0] > 0).long()
            logits = self.up(self.down(image).relu())
            logits = functional.interpolate(logits, mask.shape[-2:], mode="bilinear")
            return functional.cross_entropy(logits, mask, reduction="none").mean((1, 2))

    return of_images(Net())


@ordinary
def lstm_with_packed_sequences(pl):
    class Net(plain(pl)):
        def make(self):
            self.lstm = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
            self.head = nn.Linear(10, 3)

        def losses(self, batch):
            x, lengths, y = batch
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
            return functional.cross_entropy(self.head(out.mean(1)), y, reduction="none")

    def lengths(seed):
        return torch.arange(SIZE) % 3 + 4

    train, val = loaders(sequences, lengths)
    return Case(module=Net(), train=train, val=val)


@ordinary
def gated_recurrent_unit(pl):
    class Net(plain(pl)):
        def make(self):
            self.gru, self.head = nn.GRU(4, 5, num_layers=2, dropout=0.2), nn.Linear(5, 3)

        def forward(self, x):
            hidden = x.new_zeros(2, x.shape[0], 5)
            _, last = self.gru(x.transpose(0, 1), hidden)
            return self.head(last[-1])

    return of_sequences(Net())


@ordinary
def multihead_attention(pl):
    class Net(plain(pl)):
        def make(self):
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            out, weights = self.attention(x, x, x, attn_mask=causal)
            assert weights.shape[1:] == (x.shape[1], x.shape[1])
            return self.head(out[:, -1])

    return of_sequences(Net())


@ordinary
def transformer_encoder(pl):
    class Net(plain(pl)):
        def make(self):
            layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            padding = torch.zeros(x.shape[:2], dtype=torch.bool)
            padding[:, -1] = True
            return self.head(self.encoder(x, src_key_padding_mask=padding).mean(1))

    return of_sequences(Net())


@ordinary
def scaled_dot_products_with_masks(pl):
    class Net(plain(pl)):
        def make(self):
            self.qkv, self.head = nn.Linear(4, 12), nn.Linear(4, 3)

        def forward(self, x):
            q, k, v = (part.unsqueeze(1) for part in self.qkv(x).chunk(3, -1))
            padding = x.norm(dim=-1)[:, None, None] > 0.1
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=padding)
            out = out + functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.head(out[:, 0, -1])

    return of_sequences(Net())


@ordinary
def rotary_cache_made_in_the_first_forward(pl):
    class Rotary(nn.Module):
        cached = None

        def forward(self, x):
            length = x.shape[1]
            if self.cached is None or self.cached[0].shape[0] < length:
                t = torch.arange(length, device=x.device, dtype=x.dtype)
                angles = torch.outer(t, torch.tensor([1.0, 0.1]))
                self.cached = (angles.cos(), angles.sin())
            cos, sin = self.cached
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    class Net(plain(pl)):
        def make(self):
            self.rotary, self.head = Rotary(), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.rotary(x).mean(1))

    return of_sequences(Net())


@ordinary
def mask_cache_by_shape(pl):
    class Net(plain(pl)):
        def make(self):
            self.head, self.masks = nn.Linear(4, 3), {}

        def forward(self, x):
            length = x.size(1)
            if length not in self.masks:
                self.masks[length] = torch.ones(length, length, device=x.device).tril()
            weights = self.masks[length] / self.masks[length].sum(-1, keepdim=True)
            return self.head((weights @ x)[:, -1])

    return of_sequences(Net())


@ordinary
def mask_cache_made_from_the_input(pl):
    """As shape-only as the one above, but written with ``new_ones`` and ``zeros_like``."""

    class Net(plain(pl)):
        mask = bias = None

        def make(self):
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            if self.mask is None:
                self.mask = x.new_ones(x.size(1), x.size(1)).tril()
                self.bias = torch.zeros_like(x[0, 0])
            return self.head((self.mask @ x)[:, -1] + self.bias)

    return of_sequences(Net())


@ordinary
def position_cache_in_a_buffer(pl):
    class Net(plain(pl)):
        def make(self):
            self.head = nn.Linear(4, 3)
            self.register_buffer("positions", torch.empty(0), persistent=False)

        def forward(self, x):
            if self.positions.numel() == 0:
                self.positions = torch.linspace(0, 1, x.shape[1], device=x.device)[:, None]
            return self.head((x + self.positions).mean(1))

    return of_sequences(Net())


@functools.cache
def window_of(length):
    return torch.hann_window(length, periodic=False)


@ordinary
def cache_of_a_function_of_shapes(pl):
    class Net(plain(pl)):
        def make(self):
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head((x * window_of(x.shape[1])[:, None]).sum(1))

    return of_sequences(Net())


@ordinary
def counters_and_times(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.batches, self.examples, self.shapes, self.times = 0, 0, [], []

        def validation_step(self, batch, batch_idx):
            started = time.perf_counter()
            self.batches += 1
            self.examples += len(batch[0])
            self.shapes.append(tuple(batch[0].shape))
            self.device_of_last, self.dtype_of_last = batch[0].device, batch[0].dtype
            losses = self.losses(batch)
            self.times.append(time.perf_counter() - started)
            return {"val_loss": losses}

    return Net()


@ordinary
def counter_in_a_buffer(pl):
    class Net(plain(pl)):
        def make(self):
            super().make()
            self.register_buffer("seen", torch.zeros((), dtype=torch.long), persistent=False)

        def on_validation_batch_end(self, *args):
            self.seen_in_python = getattr(self, "seen_in_python", 0) + 1

        def training_step(self, batch, batch_idx):
            self.seen += len(batch[0])
            return super().training_step(batch, batch_idx)

    return Net()


@ordinary
def channels_last_and_complex_numbers(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            wave = torch.fft.fft2(x[:, 0])
            parts = torch.stack([wave.real, wave.imag], 1).to(memory_format=torch.channels_last)
            return self.head(self.net(parts).mean((2, 3)) / 8)

    return of_images(Net())


@ordinary
def lazy_layers(pl):
    class Net(plain(pl)):
        def make(self):
            self.net = nn.Sequential(nn.LazyConv2d(2, 3), nn.Flatten(), nn.LazyLinear(3))
            self.net(torch.zeros(1, 1, 8, 8))

    return of_images(Net())
