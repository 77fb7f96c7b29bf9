"""A kernel of your own.

A kernel is a formula of the distance and its derivative. The rational quadratic kernel is
(1 + |x - z|^2 / 2 a l^2)^-a. It is a mixture of Gaussians of all lengthscales, for functions that
vary slowly and quickly at once.
"""

import pickle
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import torch

from parkrr import ParKRegressor
from parkrr.errors import ModelFileError
from parkrr.kernels import Gaussian, Radial


@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """A frozen dataclass with a lengthscale, so that the search can try other values."""

    lengthscale: float = 1.0
    a: float = 0.5

    @property
    def coefficient(self):
        """The factor of the squared distance: s = coefficient |x - z|^2."""
        return 0.5 / (self.a * self.lengthscale**2)

    def profile(self, buffers, no_underflow):
        """Turn s into kernel values, in place; rounding may leave s below 0."""
        return buffers[0].clamp_min_(0).add_(1).pow_(-self.a)

    def derivative(self, buffers):
        """Turn s into dK/ds, in place; importances and learned metrics need it."""
        return buffers[0].clamp_min_(0).add_(1).pow_(-self.a - 1).mul_(-self.a)


kernel = RationalQuadratic(lengthscale=0.5, a=0.3)

# Check the formula, its gradient, and that the kernel matrix has no negative eigenvalue.
X = torch.randn(200, 3, dtype=torch.float64)
formula = (1 + torch.cdist(X, X) ** 2 / (2 * 0.3 * 0.5**2)) ** -0.3
torch.testing.assert_close(kernel(X, X), formula)
x = X[:1].clone().requires_grad_(True)
[slope] = torch.autograd.grad((1 + (x - X[1]).square().sum() / 0.15) ** -0.3, x)
section = kernel.slope(X[1:2])
torch.testing.assert_close(section(X[:1]) * (X[:1] - X[1]), slope)
assert torch.linalg.eigvalsh(kernel(X, X)).min() > 0

# A slow wave with two narrow peaks.
rng = np.random.default_rng(0)
rows = rng.uniform(-3, 3, (3000, 2))
peaks = sum(np.exp(-40 * ((rows - peak) ** 2).sum(1)) for peak in ([1, -1], [-2, 1]))
y = 2 * np.sin(rows[:, 0]) + 3 * peaks + 0.02 * rng.normal(size=3000)
for kernel in (Gaussian(0.5), RationalQuadratic(0.5, a=0.3)):
    model = ParKRegressor(kernel=kernel, n_cells=2, random_state=0)  # the penalty is chosen
    model.fit(rows[:2000], y[:2000])
    error = np.sqrt(np.mean((model.predict(rows[2000:]) - y[2000:]) ** 2))
    print(f"{kernel}: RMSE {error:.3f}, noise 0.020")

# A model file holds no code, so it cannot hold your kernel. A pickle can.
try:
    model.save("never-written.park")
except ModelFileError as error:
    print(error)
again = pickle.loads(pickle.dumps(model))
print("same predictions after pickling:", np.array_equal(again.predict(rows), model.predict(rows)))

line = np.column_stack([np.linspace(-3, 3, 400), np.full(400, -1.0)])  # through one of the peaks
figure, ax = plt.subplots(layout="constrained")
ax.plot(line[:, 0], model.predict(line), label="rational quadratic kernel")
near = np.abs(rows[:, 1] + 1) < 0.1
ax.scatter(rows[near, 0], y[near], 8, "grey", label="rows nearby")
ax.set(xlabel="first feature", ylabel="prediction")
ax.legend(frameon=False)
plt.show()
