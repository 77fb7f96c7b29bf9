"""K(x, z), and the feature map in front of it."""

from parkrr.kernels.base import Kernel
from parkrr.kernels.blocks import (
    InnerProductBlock,
    KernelBlock,
    PolynomialBlock,
    block_rows,
    coordinate_limit,
)
from parkrr.kernels.feature_map import (
    FeatureMap,
    centering,
    mixed,
    pulled_back,
    root,
    standardising,
    with_scores,
)
from parkrr.kernels.inner_product import Linear, Polynomial
from parkrr.kernels.names import KERNELS, as_kernel
from parkrr.kernels.radial import Gaussian, Laplacian, Matern, Radial, gradient_products, gradients
