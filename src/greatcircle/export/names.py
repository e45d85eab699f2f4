"""Check names before they become source code: functions and classes, files, inputs and outputs."""

import keyword
import re
from pathlib import Path
from typing import Any

LENGTH = 50
"""Most characters of a name."""

RESERVED = (
    "alignas alignof and asm auto bool break case catch char class compl concept const "
    "constexpr continue default delete do double else enum explicit export extern false float "
    "for friend goto if inline int long mutable namespace new not operator or private "
    "protected public register requires restrict return short signed sizeof static struct "
    "switch template this throw true try typedef typeid typename union unsigned using virtual "
    "void volatile while xor "
)
"""Keywords of C and C++."""

USED = {
    # the class must not replace what its own file uses
    "torch": "torch super float INPUTS OUTPUTS UNITS LIPSCHITZ MODEL_SHA256 DTYPE",
    # what CasADi refuses; and what math.h defines, which the C code that CasADi generates includes
    "casadi": (
        "jac hess null linux unix INFINITY NAN signgam fpclassify isfinite isinf isnan isnormal "
        "signbit isgreater isgreaterequal isless islessequal islessgreater isunordered "
        "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp "
        "exp10 exp2 expm1 fabs fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 "
        "jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint "
        "nextafter nexttoward pow pow10 remainder remquo rint round scalb scalbln scalbn "
        "significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn "
        "lgamma_r lgammaf_r lgammal_r"
    ),
}
"""Names that the files of a format use themselves."""

C_STRING = 4095
"""Most bytes of a string that every C99 compiler takes."""


def checked_name(name: Any, stem: str, to: str) -> str:
    """Return the given name, or make one from a file's, if it is safe in C, C++ and Python."""
    if name is None:
        made = re.sub(r"[\W_]+", "_", stem, flags=re.ASCII)[: LENGTH - len("model_")].strip("_")
        return made if _is_name(made, to) else f"model_{made}".rstrip("_")
    if not isinstance(name, str) or not _is_name(name, to):
        raise ValueError(
            f"name is {name!r}; expected at most {LENGTH} letters, digits and single _, beginning "
            "with a letter, and no keyword of C, C++ or Python, nor a name that the format "
            f"{to!r} uses itself: try 'model'"
        )
    return name


def _is_name(name: str, to: str) -> bool:
    if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*_?", name) or len(name) > LENGTH:
        return False
    taken = [*RESERVED.split(), *keyword.kwlist, *USED.get(to, "").split()]
    if to == "casadi":  # math.h has each function in three precisions
        return not ({name, name.removesuffix("f"), name.removesuffix("l")} & {*taken}) and (
            not name.lower().startswith("casadi")
        )
    return name not in taken


def check_header(path: Path) -> None:
    """Refuse a file name that C99 (6.4.7) does not define in an #include."""
    if not re.fullmatch(r"[ -~]+", path.name) or set(path.name) & set("\"'\\?"):
        raise ValueError(
            f"path is {str(path)!r}, and C cannot include a header of that name; expected a file "
            "name in ASCII without quotes, ?, \\ and control characters: try 'model.c'"
        )


def check_c_string(name: str) -> None:
    """Refuse a name of an input or output that a C string cannot hold."""
    if re.search("[\0\ud800-\udfff]", name) or len(name.encode()) > C_STRING:
        shown = name if len(name) <= LENGTH else f"{name[:LENGTH]}..."
        raise ValueError(
            f"an input or output is called {shown!r}; expected valid Unicode without a null "
            f"character, of at most {C_STRING} bytes, for a string in C: rename the column"
        )
