"""Precision, threads, versions, the container file format and atomic writes."""

__all__: list[str] = []
