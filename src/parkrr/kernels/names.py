"""Kernels by name."""

from parkrr.errors import ParameterError
from parkrr.kernels.base import Kernel
from parkrr.kernels.inner_product import Linear, Polynomial
from parkrr.kernels.radial import Gaussian, Laplacian, Matern

KERNELS: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "polynomial": Polynomial,
    "linear": Linear,
}


def as_kernel(kernel: Kernel | str) -> Kernel:
    """The kernel itself, or the one of that name with its defaults.

    Examples
    --------
    >>> from parkrr.kernels import as_kernel
    >>> as_kernel("matern")
    Matern(lengthscale=1.0, nu=1.5)
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise ParameterError(f"kernel must be a Kernel or one of {sorted(KERNELS)}, got {kernel!r}")
