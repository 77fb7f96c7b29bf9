"""A scaler, a classifier, and a grid search over kernels."""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from parkrr import ParKClassifier
from parkrr.kernels import Gaussian, Matern

X_train, X_test, y_train, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
pipeline = make_pipeline(StandardScaler(), ParKClassifier(random_state=0))
grid = {
    "parkclassifier__kernel": [Gaussian(8.0), Gaussian(16.0), Matern(16.0)],
    "parkclassifier__penalty": [1e-6, 1e-4],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
print(f"accuracy {search.score(X_test, y_test):.3f} with {search.best_params_}")
