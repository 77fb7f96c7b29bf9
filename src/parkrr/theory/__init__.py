"""What the paper's theory says of a partition."""

from parkrr.theory.bounds import Theory, theory

__all__ = ["Theory", "theory"]
