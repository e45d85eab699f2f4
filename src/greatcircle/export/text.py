"""Numbers and names as source code: exact, and harmless whatever a column is called."""

import numpy as np

__all__ = ["literal", "nested", "plain", "table"]


def literal(value: float | np.floating, suffix: str = "") -> str:
    """Return the shortest decimal that reads back as the same number."""
    kind = type(value) if isinstance(value, np.floating) else np.float64
    scientific = np.format_float_scientific(kind(value), unique=True, trim="-", exp_digits=1)
    positional = np.format_float_positional(kind(value), unique=True, trim="0")
    return (positional if len(positional) <= len(scientific) + 1 else scientific) + suffix


def nested(array: np.ndarray) -> str:
    """Return an array as nested lists of literals."""
    if array.ndim == 0:
        return literal(array.reshape(1)[0])
    separator = ",\n         " if array.ndim > 1 else ", "
    return "[" + separator.join(nested(row) for row in array) + "]"


def plain(text: str) -> str:
    """Return printable ASCII on one line that ends no comment and no docstring."""
    ascii_only = text.replace("‖", "|").replace("≥", ">=")
    ascii_only = ascii_only.encode("ascii", "backslashreplace").decode("ascii")
    shown = "".join(c if c.isprintable() else " " for c in ascii_only)
    for special, instead in (("\\", "/"), ("*/", "* /"), ("/*", "/ *"), ("??", "? ?"), ('"', "'")):
        while special in shown:
            shown = shown.replace(special, instead)
    return shown


def table(
    names: tuple[str, ...],
    units: dict[str, str],
    lower: np.ndarray | None,
    upper: np.ndarray | None,
) -> list[str]:
    """Return a line for each input or output: number, name, unit, and its range if clipped."""
    lines = [
        f"  {i:3d}  {plain(name)}" + (f" [{plain(units[name])}]" if name in units else "")
        for i, name in enumerate(names)
    ]
    if lower is None or upper is None:
        return lines
    ranges = zip(lines, lower, upper, strict=True)
    return [f"{line}, clipped to {literal(a)} ... {literal(b)}" for line, a, b in ranges]
