"""A tour of the plots.

Every plot of a model, for the 442 patients of scikit-learn's diabetes data: what was
chosen, how good it is, and why it predicts what it does.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor, plots

X, y = load_diabetes(as_frame=True, return_X_y=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = ParKRegressor(random_state=0).fit(X_train, y_train)
print(model.chosen_)
print(f"test R2 {model.score(X_test, y_test):.3f}")

figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
plots.plot_predictions(model, ax=axes[0, 0])  # of leave-one-out rows, without X and y
plots.plot_residuals(model, ax=axes[0, 1])
plots.plot_tuning(model, ax=axes[1, 0])  # what is chosen may be behind by chance
plots.plot_importances(model, ax=axes[1, 1])

figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
plots.plot_partial_dependence(model, "bmi", X_test, individual=True, ax=axes[0, 0])
plots.plot_interaction(model, ("bmi", "s5"), X_test, ax=axes[0, 1])
plots.plot_explanation(model, X_test[:1], ax=axes[1, 0])
plots.plot_partition(model, X_train, ax=axes[1, 1])

# Cells have plots of their own; so few rows need only one, unless you ask for more.
cells = ParKRegressor(model.kernel, n_cells=4, effort="fast", random_state=0).fit(X, y)
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plots.plot_cell_sizes(cells, ax=axes[0])
plots.plot_error_by_cell(cells, ax=axes[1])
plt.show()
