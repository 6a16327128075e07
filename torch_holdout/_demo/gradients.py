"""A public embedding of pictures: which directions their edges have, and where.

A function of the picture alone, with nothing learned from any data.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

DIRECTIONS = 8
CELL = 4  # pixels


def gradient_histograms(pictures: Tensor) -> Tensor:
    """Return histograms of the edges' directions in cells of 4 x 4 pixels, [B, features].

    Pictures [B, H, W] with values from 0 are first moved to the middle and set upright (sheared
    until the two axes are uncorrelated). A pixel counts for its two nearest directions and four
    nearest cells (Dalal and Triggs 2005, without blocks); square roots make large edges count less.

    Example:
        >>> picture = torch.zeros(1, 8, 8)
        >>> picture[:, 2:6, 3] = 1.0
        >>> gradient_histograms(picture).shape
        torch.Size([1, 32])
    """
    upright = _upright(pictures.to(torch.float32)).sqrt()
    padded = functional.pad(upright[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    places = torch.atan2(down, across) * (DIRECTIONS / (2 * math.pi)) % DIRECTIONS
    centres = torch.arange(DIRECTIONS, device=pictures.device).view(-1, 1, 1)
    away = (places[:, None] - centres).abs()
    nearness = (1 - torch.minimum(away, DIRECTIONS - away)).clamp(min=0)
    edges = nearness * torch.hypot(across, down)[:, None]
    ramp = 1 - ((torch.arange(2 * CELL, device=pictures.device) + 0.5) / CELL - 1).abs()
    weights = (ramp[:, None] * ramp).expand(DIRECTIONS, 1, -1, -1)
    cells = functional.conv2d(edges, weights, stride=CELL, padding=CELL // 2, groups=DIRECTIONS)
    return cells.flatten(1).clamp(min=0).sqrt()


def _upright(pictures: Tensor) -> Tensor:
    count, height, width = pictures.shape
    place = pictures.device
    down = torch.linspace(-1, 1, height, device=place)
    across = torch.linspace(-1, 1, width, device=place)
    mass = pictures.sum(dim=(1, 2)).clamp(min=1e-6)
    rows, columns = pictures.sum(dim=2), pictures.sum(dim=1)
    middle_down, middle_across = (rows @ down) / mass, (columns @ across) / mass
    from_row = down - middle_down[:, None]
    from_column = across - middle_across[:, None]
    spread = (rows * from_row**2).sum(dim=1)
    together = torch.einsum("bhw,bh,bw->b", pictures, from_row, from_column)
    slant = (together / spread.clamp(min=1e-6)).clamp(-1, 1)
    one, zero = torch.ones_like(slant), torch.zeros_like(slant)
    moves = torch.stack((one, slant, middle_across, zero, one, middle_down), dim=1).view(-1, 2, 3)
    grid = functional.affine_grid(moves, [count, 1, height, width], align_corners=True)
    moved = functional.grid_sample(pictures[:, None], grid, align_corners=True)
    return moved[:, 0].clamp(min=0)
