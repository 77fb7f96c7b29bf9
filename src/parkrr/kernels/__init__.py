"""Kernels K(x, z), and the feature map that rows pass before them."""

from parkrr.kernels.base import (
    GROUP_OF_ROWS,
    InnerProductBlock,
    Kernel,
    KernelBlock,
    as_kernel,
    block_rows,
    coordinate_limit,
    depends_on_batch,
    multiply,
)
from parkrr.kernels.composite import FunctionKernel, KernelProduct, KernelSum
from parkrr.kernels.feature_map import (
    FeatureMap,
    add_normal_scores,
    apply_matrix,
    bound_features,
    center_features,
    matrix_root,
    measure_features,
    pull_back,
    standardize_features,
)
from parkrr.kernels.inner_product import Linear, Polynomial, PolynomialBlock
from parkrr.kernels.radial import Gaussian, Laplacian, Matern, Radial, gradient_products, gradients

KERNELS: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "polynomial": Polynomial,
    "linear": Linear,
}
