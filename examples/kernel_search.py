"""Search the lengthscale of a kernel with scikit-learn and with Optuna.

A fit chooses by itself, which is faster. A search of your own is for another score, here the
mean absolute error, or another way to split rows. A perfect model has one of 0.80.
"""

import optuna
from scipy.stats import loguniform
from sklearn.datasets import make_friedman1
from sklearn.model_selection import RandomizedSearchCV, cross_val_score

from parkrr import Gaussian, ParKRegressor

SCORE = "neg_mean_absolute_error"
X, y = make_friedman1(n_samples=600, noise=1.0, random_state=0)
# What the fit is not to choose is set; parameters of the kernel go by kernel__.
estimator = ParKRegressor(kernel=Gaussian(), metric="standard", blend=1, coarse=0, random_state=0)

# 1. scikit-learn draws both parameters at random.
space = {"kernel__lengthscale": loguniform(0.5, 20), "penalty": loguniform(1e-7, 1e-1)}
search = RandomizedSearchCV(estimator, space, n_iter=15, scoring=SCORE, cv=3, random_state=0)
search.fit(X, y)
best = search.best_params_
print(
    f"scikit-learn: error {-search.best_score_:.3f}, lengthscale {best['kernel__lengthscale']:.1f}"
)


# 2. Optuna draws them where earlier draws were good.
def score(draw):
    estimator.set_params(
        kernel__lengthscale=draw.suggest_float("kernel__lengthscale", 0.5, 20, log=True),
        penalty=draw.suggest_float("penalty", 1e-7, 1e-1, log=True),
    )
    return -cross_val_score(estimator, X, y, scoring=SCORE, cv=3).mean()


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(score, 15)
best = study.best_params
print(f"Optuna: error {study.best_value:.3f}, lengthscale {best['kernel__lengthscale']:.1f}")

# 3. The best parameters, fitted to all rows.
model = estimator.set_params(**best).fit(X, y)
print(f"fitted with {model.kernel.__class__.__name__}, penalty {model.penalty:.1e}")
