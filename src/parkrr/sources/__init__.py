"""Rows of other libraries, as the table that fits and predictions of files read."""

from parkrr.sources.scan import scan
