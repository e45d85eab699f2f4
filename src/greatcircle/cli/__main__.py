"""`python -m greatcircle.cli` is the command `greatcircle`."""

import sys

from greatcircle.cli import main

if __name__ == "__main__":
    sys.exit(main())
