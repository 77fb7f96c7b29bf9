"""A fitted estimator as plain facts, and as one HTML report."""

from parkrr.report.report import describe_in_html, write_report
from parkrr.report.summary import describe, summarize
