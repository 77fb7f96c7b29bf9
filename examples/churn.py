"""Customers who leave, with calibrated probabilities.

Of customers with a probability of 0.3, three in ten should leave: that is what a budget for
retention needs. The rows are made up, with categories, missing values and rare leavers.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from parkrr import ParKClassifier, plots

rng = np.random.default_rng(0)
n = 8000
customers = pd.DataFrame(
    {
        "months": rng.exponential(24, n).round(),
        "plan": rng.choice(["basic", "family", "business"], n, p=[0.6, 0.3, 0.1]),
        "calls": rng.poisson(1.5, n).astype(float),
        "bill": rng.gamma(4, 12, n).round(2),
    }
)
score = -2.2 - 0.03 * customers["months"] + 0.5 * customers["calls"]
score += 0.02 * customers["bill"] * (customers["plan"] == "basic")
leaves = rng.random(n) < 1 / (1 + np.exp(-score))
customers.loc[rng.random(n) < 0.1, "calls"] = np.nan  # not every call is on record
label = np.where(leaves, "leaves", "stays")

X_train, X_test, y_train, y_test = train_test_split(customers, label, random_state=0)
model = ParKClassifier(effort="fast", random_state=0).fit(X_train, y_train)
probability = model.predict_proba(X_test)[:, 0]  # of model.classes_[0], "leaves"
left = y_test == "leaves"
print(f"{left.mean():.3f} leave, mean probability {probability.mean():.3f}")
print(f"AUC {roc_auc_score(left, probability):.3f}, Brier score", end=" ")
print(f"{brier_score_loss(left, probability):.3f} ({left.mean() * (1 - left.mean()):.3f} constant)")
print(f"calibrated by {model.chosen_.uncertainty}")
for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 1.0)):
    group = (probability >= low) & (probability < high)
    mean = probability[group].mean()
    print(f"probability {low} to {high}: mean {mean:.2f}, {left[group].mean():.2f} leave")

figure, (first, second) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plots.plot_predictions(model, X_test, y_test, ax=first)
plots.plot_importances(model, ax=second)
plt.show()
