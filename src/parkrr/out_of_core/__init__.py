"""Rows that stay on disk, here or on a cluster."""

from parkrr.out_of_core.checkpoint import JOB, Checkpoint, digest_of
from parkrr.out_of_core.fit import fit_from_disk
from parkrr.out_of_core.predict_files import FilePredictor, write_predictions
from parkrr.out_of_core.score_files import FileScorer, score_table
