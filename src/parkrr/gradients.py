"""Gradients of a kernel model: along what does it change?

For f = sum_j alpha_j K(., z_j) with a radial kernel the gradient at x is
sum_j alpha_j S(x, z_j) (x - z_j), two products with the slopes S.
"""

import torch
from torch import Tensor

from parkrr.kernels import Radial


def gradients(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Of all outputs at rows X (n, e), shape (t, n, e).

    Parameters
    ----------
    weights, Z
        Coefficients (m, t) of the centres Z (m, e).
    """
    section = kernel.slope(Z)
    alpha = weights.to(Z.dtype)
    parts = []
    for x in torch.split(X.to(Z.dtype), section.block_rows(len(X))):
        S = section(section.lift(x))  # (b, m)
        parts.append(torch.stack([x * (S @ a) - S @ (a * Z) for a in alpha.T[:, :, None]]))
    return torch.cat(parts, 1)


def gradient_products(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Sum over rows X (n, e) and outputs of grad f grad f', shape (e, e)."""
    G = gradients(kernel, weights, Z, X).flatten(0, 1).double()  # (t n, e)
    return G.T @ G
