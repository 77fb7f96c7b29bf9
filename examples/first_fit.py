"""Fit, predict, and look at the cells."""

from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor

X, y = make_friedman1(n_samples=20_000, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

model = ParKRegressor(random_state=0)
model.fit(X_train, y_train)
print(f"R2 {model.score(X_test, y_test):.3f} on {len(X_test):,} rows")
print(f"chosen: {model.chosen_.params['kernel']}, penalty {model.chosen_.params['penalty']:.1e}")
print(f"importances: {model.feature_importances_.round(2)}")

for cell in model.report_:
    print(
        f"cell {cell.cell}: {cell.rows:,} rows, {cell.centers} centres, {cell.solver} "
        f"({cell.why}), {cell.seconds:.2f} s {cell.rescue}"
    )
