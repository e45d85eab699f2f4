"""Check the name of a model before it names functions and classes in source code."""

import keyword
import re
from typing import Any

from greatcircle.export.formats import EXPORTERS

__all__ = ["KEYWORDS", "checked_name"]

LENGTH = 50
"""Largest number of characters of a name."""

KEYWORDS = (
    "alignas alignof and asm auto bool break case catch char class compl concept const "
    "constexpr continue default delete do double else enum explicit export extern false float "
    "for friend goto if inline int long mutable namespace new not operator or private "
    "protected public register requires restrict return short signed sizeof static struct "
    "switch template this throw true try typedef typeid typename union unsigned using virtual "
    "void volatile while xor"
)
"""Keywords of C and C++."""


def checked_name(name: Any, stem: str, to: str) -> str:
    """Return a valid name, or make one from the stem of the file.

    Parameters
    ----------
    name
        The name that the user gave, or None.
    stem
        Name of the file without its ending.
    to
        Format of the file.
    """
    if name is None:
        made = re.sub(r"[\W_]+", "_", stem, flags=re.ASCII)[: LENGTH - len("model_")].strip("_")
        return made if _is_valid(made, to) else f"model_{made}".rstrip("_")
    if not isinstance(name, str) or not _is_valid(name, to):
        raise ValueError(
            f"name is {name!r}; expected at most {LENGTH} letters, digits and single underscores, "
            "beginning with a letter, and neither a keyword of C, C++ or Python nor a name that "
            f"the format {to!r} uses itself: try 'model'"
        )
    return name


def _is_valid(name: str, to: str) -> bool:
    return bool(
        re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*_?", name)
        and len(name) <= LENGTH
        and name not in KEYWORDS.split()
        and not keyword.iskeyword(name)
        and not EXPORTERS[to].is_used(name)
    )
