"""Numbers as JSON values, which may be infinite or NaN."""

import math
import reprlib
from typing import Any

__all__ = ["decode_float", "encode_float"]

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode_float(value: float) -> Any:
    """Return a number as JSON holds it; {"float": "inf"} and the like where JSON has none."""
    return value if math.isfinite(value) else {"float": str(value)}


def decode_float(value: Any) -> float:
    """Return the number that `encode_float` wrote, or raise ValueError."""
    match value:
        case float():
            return value
        case {"float": str(name)} if name in _SPECIAL:
            return _SPECIAL[name]
    raise ValueError(f"{reprlib.repr(value)}; expected float")
