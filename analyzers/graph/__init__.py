"""The wait-for graph: who cannot go on before whom."""

from .build import Built, build

__all__ = ["Built", "build"]
