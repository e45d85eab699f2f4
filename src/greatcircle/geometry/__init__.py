"""Spheres of matrices with a fixed Frobenius norm."""

__all__: list[str] = []
