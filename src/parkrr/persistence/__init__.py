"""A model as a file."""

from parkrr.persistence.estimator_file import load_estimator, save_estimator
from parkrr.persistence.model_file import encode_kernel, read_model, write_model
