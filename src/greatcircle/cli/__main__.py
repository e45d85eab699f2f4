"""`python -m greatcircle.cli` is the command `greatcircle`."""

from greatcircle.cli import command

if __name__ == "__main__":
    command()
