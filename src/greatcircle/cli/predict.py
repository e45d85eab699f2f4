"""`greatcircle predict`: a stored model on new rows."""

import argparse
import gzip
import io
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
        "The columns are found by their names; other columns are ignored. A classifier also\n"
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
    from greatcircle.data import files

    if options.out is not None:
        files.check_name(options.out)
        output.check_writable(options.out.parent)
    output.check_model(options.model)
    if options.data.suffix == ".safetensors":
        raise ValueError(
            f"the second argument is {options.data}; expected the model first, then the table: "
            "greatcircle predict MODEL DATA"
        )
    from greatcircle.estimators import load

    model: Any = load(options.model)
    predictions = _predicted(model, _inputs(model, options.data))
    if options.out is not None:
        _write(predictions, options.out)
        output.say_written(Console(stderr=True), [options.out])
    if options.json:
        output.print_json(
            {"rows": len(predictions), "predictions": predictions.to_dict(as_series=False)}
        )
    elif options.out is None:
        output.print_text(predictions.write_csv())
    return 0


def _inputs(model: Any, path: Path) -> "pl.DataFrame | Any":
    """Take the model's columns, by name; by position if it was trained without names."""
    import polars as pl

    from greatcircle.data import files

    table = files.frame(path)
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        found = files.find(table, list(names), path)
        columns = files.numbers(table, found, path)
        return pl.DataFrame({name: columns[f] for name, f in zip(names, found, strict=True)})
    named = [name for name in table.columns if not files.is_unnamed(name)]
    if len(named) != model.n_features_in_:
        raise ValueError(
            f"{path} has {len(named)} columns with a name; the model was trained on an array "
            f"without names, so expected its {model.n_features_in_} columns in order and no others"
        )
    return pl.DataFrame(files.numbers(table, named, path)).to_numpy()


def _predicted(model: Any, inputs: Any) -> "pl.DataFrame":
    """Targets under their names; of a classifier also the probability of each class."""
    import polars as pl

    values = model.predict(inputs)
    columns = list(values.reshape(len(values), -1).T)
    names = list(getattr(model, "target_names_", ()) or (f"y{i}" for i in range(len(columns))))
    if hasattr(model, "classes_"):
        columns += list(model.predict_proba(inputs).T)
        names += [f"probability_{label}" for label in model.classes_]
    return pl.DataFrame(dict(zip(_distinct(names), columns, strict=True)))


def _distinct(names: list[str]) -> list[str]:
    """Make names differ: one that was there before gets a number, as in y, y_2."""
    distinct: dict[str, None] = {}
    for name in names:
        new, copies = name, 1
        while new in distinct or (copies > 1 and new in names):
            copies += 1
            new = f"{name}_{copies}"
        distinct[new] = None
    return list(distinct)


def _write(predictions: "pl.DataFrame", path: Path) -> None:
    """Write the whole file at once, or leave the old one as it is."""
    from greatcircle._runtime.atomic import atomic_write, writable_path

    name, data = path.name.lower(), io.BytesIO()
    if name.endswith(".parquet"):
        predictions.write_parquet(data)
    else:
        predictions.write_csv(data)
    whole = data.getvalue()
    packed = gzip.compress(whole, mtime=0) if name.endswith(".gz") else whole
    atomic_write(writable_path(path), packed)
