"""Tables of flight data: one generator that is embedded, and what a table is."""

from greatcircle.datasets import ground_effect
from greatcircle.datasets.table import Table

__all__ = ["Table", "ground_effect"]
