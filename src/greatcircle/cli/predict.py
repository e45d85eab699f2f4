"""`greatcircle predict`: apply a model file to the rows of a table."""

import argparse
import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from greatcircle.cli import output

# Imported where they are used: `predict --help` answers at once.
if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from greatcircle.model import Model

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Apply a model file written by `greatcircle fit` to the rows of a CSV or Parquet file.\n"
        "Columns are found by name; other columns are ignored. A classifier also returns the\n"
        "probability of each class."
    )
    parser.epilog = (
        "examples:\n"
        "  greatcircle predict runs/flight/model.safetensors new.csv --out predictions.csv\n"
        "  greatcircle predict runs/flight/model.safetensors new.parquet --out out.parquet\n"
        "  greatcircle predict runs/flight/model.safetensors new.csv | head"
    )
    parser.add_argument("model", type=Path, help="a model.safetensors")
    parser.add_argument("data", type=Path, help="a .csv, .csv.gz or .parquet file")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .csv, .csv.gz or .parquet file to write (default: CSV on standard output)",
    )
    output.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Load the model, read the rows, and write or print the predictions."""
    output.require_app("polars")
    from greatcircle.data import files

    if options.out is not None:
        files.check_name(options.out)
        output.check_folder(options.out.parent)
    if options.data.suffix == ".safetensors":
        raise ValueError(
            f"the second argument is {options.data}; expected the model first, then the table: "
            "greatcircle predict MODEL DATA"
        )
    model = output.load_model(options.model)
    inputs = files.read_inputs(options.data, model.feature_names, model.sizes[0])
    predictions = _predictions(model, inputs)
    if options.out is not None:
        _write(predictions, options.out)
        output.print_written(Console(stderr=True), [options.out])
    if options.json:
        output.print_json(
            {"rows": len(predictions), "predictions": predictions.to_dict(as_series=False)}
        )
    elif options.out is None:
        output.print_text(predictions.write_csv())
    return 0


def _predictions(model: "Model", inputs: "np.ndarray") -> "pl.DataFrame":
    """Return the predicted targets and, for a classifier, the probability of each class."""
    import polars as pl

    values = model.predict(inputs)
    columns = list(values.reshape(len(values), -1).T)
    names = list(model.target_names or (f"y{i}" for i in range(len(columns))))
    if model.classes is not None:
        columns += list(model.predict_proba(inputs).T)
        names += [f"probability_{label}" for label in model.classes]
    return pl.DataFrame(dict(zip(_distinct(names), columns, strict=True)))


def _distinct(names: list[str]) -> list[str]:
    """Number repeated names, as in y, y_2."""
    distinct: dict[str, None] = {}
    for name in names:
        new, copies = name, 1
        while new in distinct or (copies > 1 and new in names):
            copies += 1
            new = f"{name}_{copies}"
        distinct[new] = None
    return list(distinct)


def _write(predictions: "pl.DataFrame", path: Path) -> None:
    """Write the complete file, or leave an existing one as it is."""
    from greatcircle._runtime.atomic import atomic_write, writable_path

    name, data = path.name.lower(), io.BytesIO()
    if name.endswith(".parquet"):
        predictions.write_parquet(data)
    else:
        predictions.write_csv(data)
    content = data.getvalue()
    packed = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
    atomic_write(writable_path(path), packed)
