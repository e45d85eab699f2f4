"""Tables of flight data: a generator and two public data sets; `read` for other files."""

from greatcircle.data.files import read
from greatcircle.data.table import Table
from greatcircle.datasets import ground_effect, neural_fly, neural_lander
from greatcircle.datasets.download import DownloadError

__all__ = ["DownloadError", "Table", "ground_effect", "neural_fly", "neural_lander", "read"]
