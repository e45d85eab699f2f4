"""Tables, files, streams, splits, checked rows and scaling of data."""

__all__: list[str] = []
