"""Tables of flight data: an embedded generator, two public sets, and files of the user's own."""

from greatcircle.datasets import ground_effect, neural_fly, neural_lander
from greatcircle.datasets.download import DownloadError
from greatcircle.datasets.files import read
from greatcircle.datasets.table import Table

__all__ = ["DownloadError", "Table", "ground_effect", "neural_fly", "neural_lander", "read"]
