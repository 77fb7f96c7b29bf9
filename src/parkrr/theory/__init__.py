"""The bounds of the paper, computed for a partition."""

from parkrr.theory.bounds import Theory, theory

__all__ = ["Theory", "theory"]
