"""Run the command line as `python -m greatcircle.cli`."""

from greatcircle.cli import command

__all__: list[str] = []

if __name__ == "__main__":
    command()
