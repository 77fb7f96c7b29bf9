"""The average gradient outer product of a kernel model: along what does it change?

For f = sum_j alpha_j K(., z_j) with a radial kernel the gradient at x is
sum_j alpha_j S(x, z_j) (x - z_j), two products with the slopes S.
"""

import torch
from torch import Tensor

from parkrr.kernels import Radial


def gradient_products(kernel: Radial, weights: Tensor, Z: Tensor, X: Tensor) -> Tensor:
    """Sum over rows X (n, e) and outputs of grad f grad f', shape (e, e).

    Parameters
    ----------
    weights, Z
        Coefficients (m, t) of the centres Z (m, e).
    """
    section = kernel.slope(Z)
    alpha = weights.to(Z.dtype)
    M = torch.zeros(Z.shape[1], Z.shape[1], dtype=torch.float64, device=Z.device)
    for x in torch.split(X, section.block_rows(len(X))):
        S = section(section.lift(x))  # (b, m)
        for a in alpha.T[:, :, None]:  # (m, 1)
            G = x * (S @ a) - S @ (a * Z)  # (b, e)
            M += (G.T @ G).double()
    return M
