"""Numbers and words as source code: exact, and harmless whatever a column is called."""

import numpy as np


def literal(value: float | np.floating, suffix: str = "") -> str:
    """The shortest decimal that reads back as the same number."""
    kind = type(value) if isinstance(value, np.floating) else np.float64
    text = np.format_float_scientific(kind(value), unique=True, trim="-", exp_digits=1)
    plain = np.format_float_positional(kind(value), unique=True, trim="0")
    return (plain if len(plain) <= len(text) + 1 else text) + suffix


def plain(words: str) -> str:
    """Printable ASCII on one line, which ends no comment and no docstring and escapes nothing."""
    ascii_only = words.encode("ascii", "backslashreplace").decode("ascii")
    shown = "".join(c if c.isprintable() else " " for c in ascii_only)
    for taken, instead in (("\\", "/"), ("*/", "* /"), ("/*", "/ *"), ("??", "? ?"), ('"', "'")):
        while taken in shown:
            shown = shown.replace(taken, instead)
    return shown


def table(names: tuple[str, ...], units: dict[str, str]) -> list[str]:
    """A line for each input or output: number, name, unit."""
    return [
        f"  {i:3d}  {plain(name)}" + (f" [{plain(units[name])}]" if name in units else "")
        for i, name in enumerate(names)
    ]
