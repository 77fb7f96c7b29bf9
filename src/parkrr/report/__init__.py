"""A fitted model as plain facts, and as one HTML page."""
