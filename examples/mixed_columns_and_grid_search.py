"""Data frames, pipelines and grid search.

Categories, dates and missing values: first the data frame goes into `fit` as it is. Then a
ColumnTransformer prepares the same columns, and GridSearchCV compares kernels and penalties. The
flats are made up.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from parkrr import Gaussian, Matern, ParKClassifier, ParKRegressor, plots

rng = np.random.default_rng(0)
n = 2000
district = rng.choice(["harbour", "old town", "hill", "station"], n, p=[0.3, 0.3, 0.3, 0.1])
size = rng.lognormal(4, 0.4, n)  # square metres
listed = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 730, n), unit="D")
season = np.sin(2 * np.pi * listed.day_of_year / 365.25)
factor = pd.Series({"harbour": 1.0, "old town": 1.4, "hill": 1.2, "station": 0.8})[district]
rent = 12 * size * factor.to_numpy() * (1 + 0.1 * season) + 40 * rng.normal(size=n)
flats = pd.DataFrame({"district": district, "size": size, "listed": listed})
flats.loc[rng.random(n) < 0.05, "size"] = np.nan
train, test, y_train, y_test = train_test_split(flats, rent, random_state=0)

# 1. The data frame as it is, with 3 seconds to choose kernel, penalty and feature weights.
model = ParKRegressor(time_budget=3, random_state=0)
model.fit(train, y_train)
print(f"data frame as it is: R2 {model.score(test, y_test):.3f}")
print("importances:", dict(zip(train, model.feature_importances_.round(2).tolist(), strict=True)))

# 2. A scikit-learn pipeline, as for any other estimator.
prepared = make_column_transformer(
    (OneHotEncoder(), ["district"]),
    (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["size"]),
    remainder="drop",
)
pipeline = make_pipeline(prepared, ParKRegressor(blend=1, coarse=0, random_state=0))
grid = {
    "parkregressor__kernel": [Gaussian(3.0), Matern(3.0)],
    "parkregressor__penalty": [1e-5, 1e-3],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(train, y_train)
print(f"pipeline without the date: R2 {search.score(test, y_test):.3f} with {search.best_params_}")

# 3. Labels and their probabilities, from the same data frame.
dear, dear_test = (np.where(y > 900, "dear", "cheap") for y in (y_train, y_test))
labels = ParKClassifier(kernel=Matern(8.0), penalty=1e-4, metric="standard", random_state=0)
labels.fit(train, dear)
print(f"dear or cheap: accuracy {labels.score(test, dear_test):.3f}, classes {labels.classes_}")
print("probabilities of the first three flats:", labels.predict_proba(test[:3])[:, 1].round(2))
plots.plot_partial_dependence(model, "district", test)
plt.show()
