"""`greatcircle predict`: a stored model on new rows."""

import argparse
import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from greatcircle.cli import output

# Everything that needs JAX is imported where it is used: `predict --help` answers at once.
if TYPE_CHECKING:
    import polars as pl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Apply a model that `greatcircle fit` has written to the rows of a CSV or Parquet file.\n"
        "The columns are found by their names; others may stand beside them. A classifier also\n"
        "gives the probability of each class."
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
    """Load, read, predict, write."""
    from greatcircle.datasets import files

    if options.out is not None:
        files.check_name(options.out)
        output.check_writable(options.out.parent)
    if not options.model.is_file():
        raise FileNotFoundError(
            f"there is no file at {options.model}; expected a model that `greatcircle fit` wrote"
        )
    if options.data.suffix == ".safetensors":
        raise ValueError(
            f"the second argument is {options.data}; expected the model first, then the table: "
            "greatcircle predict MODEL DATA"
        )
    from greatcircle import storage

    model: Any = storage.load(options.model)
    predictions = _predicted(model, _inputs(model, options.data))
    if options.out is not None:
        _write(predictions, options.out)
        output.say_written(Console(stderr=True), [options.out])
    if options.json:
        output.print_json(
            {"rows": len(predictions), "predictions": predictions.to_dict(as_series=False)}
        )
    elif options.out is None:
        sys.stdout.write(predictions.write_csv())
    return 0


def _inputs(model: Any, path: Path) -> "pl.DataFrame | Any":
    """The columns the model knows, by name; by place where it was trained without names."""
    import polars as pl

    from greatcircle.datasets import files

    table = files.frame(path)
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        files.require(table, names, path)
        return pl.DataFrame(files.numbers(table, list(names), path))
    if len(table.columns) != model.n_features_in_:
        raise ValueError(
            f"{path} has {len(table.columns)} columns; the model was trained on an array without "
            f"names, so expected its {model.n_features_in_} columns in order and no others"
        )
    return pl.DataFrame(files.numbers(table, table.columns, path)).to_numpy()


def _predicted(model: Any, inputs: Any) -> "pl.DataFrame":
    import polars as pl

    values = model.predict(inputs)
    columns = values.reshape(len(values), -1).T
    names = getattr(model, "target_names_", None) or [f"y{i}" for i in range(len(columns))]
    predictions = dict(zip(names, columns, strict=True))
    if hasattr(model, "classes_"):
        probabilities = model.predict_proba(inputs).T
        for label, column in zip(model.classes_, probabilities, strict=True):
            predictions[f"probability_{label}"] = column
    return pl.DataFrame(predictions)


def _write(predictions: "pl.DataFrame", path: Path) -> None:
    name = path.name.lower()
    if name.endswith(".parquet"):
        predictions.write_parquet(path)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(predictions.write_csv().encode("utf-8"), mtime=0))
    else:
        predictions.write_csv(path)
