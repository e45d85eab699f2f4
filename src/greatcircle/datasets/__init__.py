"""Tables of flight data: an embedded generator, two public sets, and files of the user's own."""

from greatcircle.data.files import read
from greatcircle.data.table import Table
from greatcircle.datasets import ground_effect, neural_fly, neural_lander
from greatcircle.datasets.download import DownloadError

__all__ = ["DownloadError", "Table", "ground_effect", "neural_fly", "neural_lander", "read"]
