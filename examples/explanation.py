"""Explain one prediction.

Slopes, contributions and Shapley values of the features, training rows like the one predicted, and
partial dependence. The flats are made up.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from parkrr import ParKRegressor, inspection, plots

# Rents by size and district, lower far from the centre, 60 more with a balcony.
rng = np.random.default_rng(0)
n = 3000
flats = pd.DataFrame(
    {
        "district": rng.choice(["harbour", "north", "old town"], n, p=[0.3, 0.5, 0.2]),
        "size": rng.gamma(6, 12, n).round(),
        "distance": rng.exponential(4, n).round(1),
        "balcony": rng.uniform(size=n) < 0.4,
        "floor": rng.integers(0, 6, n),  # does not matter
    }
)
per_metre = flats["district"].map({"harbour": 14.0, "north": 11.0, "old town": 17.0})
rent = flats["size"] * per_metre * np.exp(-flats["distance"] / 15) + 60 * flats["balcony"]
rent += rng.normal(0, 20, n)

# A Gaussian kernel with a metric that does not mix features has exact Shapley values.
model = ParKRegressor(kernel="gaussian", metric="standard", random_state=0, progress=False)
model.fit(flats[:2500], rent[:2500])
row = flats[2500:2501]
print(f"R2 {model.score(flats[2500:], rent[2500:]):.3f}")
print(row.to_string(index=False))

explanation = inspection.explain(model, row)
shapley = inspection.shapley_values(model, row, background=flats[:20])
print(f"predicted {explanation.predictions[0]:.0f}, a typical flat {explanation.base:.0f}")
print(f"20 flats as background {shapley.base[0]:.0f}")
table = {
    "typical": explanation.typical,
    "contribution": explanation.contributions[0].round(),
    "shapley": shapley.values[0].round(),
    "slope": explanation.slopes[0].round(1),
}
print(pd.DataFrame(table, index=explanation.features))
assert np.isclose(shapley.base[0] + shapley.values[0].sum(), shapley.predictions[0])

print("training rows like it:")
for near in inspection.neighbors(model, row, 3):
    values = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in near["values"].items()
    )
    print(f"  similarity {near['similarity']:.3f}, predicted {near['prediction']:.0f}: {values}")

dependence = inspection.partial_dependence(model, "distance", flats[2500:], grid_resolution=4)
for value, average in zip(dependence.grids[0].values, dependence.average, strict=True):
    print(f"mean rent at a distance of {value:.1f}: {average:.0f}")
joint = inspection.partial_dependence(model, ("size", "district"), flats[2500:], n_rows=100)
apart = inspection.partial_dependence(model, ("size", "balcony"), flats[2500:], n_rows=100)
print(
    f"interaction of size with district {joint.interaction:.3f}, with balcony "
    f"{apart.interaction:.3f} of their joint effects"
)

figure, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
plots.plot_explanation(model, row, ax=axes[0])
plots.plot_partial_dependence(model, "distance", flats[2500:], individual=True, ax=axes[1])
plots.plot_interaction(model, ("size", "district"), flats[2500:], ax=axes[2])
plt.show()
