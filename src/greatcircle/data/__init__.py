"""Tables, files, sources of batches, splits, validation and scaling of data."""

__all__: list[str] = []
