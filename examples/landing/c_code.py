"""Export a model to C, compile and load it, and call it on NumPy rows."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from controller import Array, Force
from greatcircle.datasets import ground_effect

__all__ = ["COMPILERS", "compile_force", "find_compiler"]

COMPILERS = ("cc", "gcc", "clang")

# One call for many rows keeps the loop over the landings out of Python.
ROWS = """
#include "force.h"
void force_rows(const force_real *x, force_real *y, long rows);
void force_rows(const force_real *x, force_real *y, long rows)
{
    long i;
    for (i = 0; i < rows; i++) force_eval(x + i * FORCE_INPUTS, y + i * FORCE_OUTPUTS);
}
"""

UNITS = dict.fromkeys(("vx", "vy", "vz"), "m/s") | dict.fromkeys(("fx", "fy", "fz"), "N")
UNITS |= {"z": "m"} | dict.fromkeys(("u1", "u2", "u3", "u4"), "8000 rpm")


def find_compiler() -> str:
    """Return the path of the C compiler."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise FileNotFoundError(
            f"no C compiler found on the PATH ({', '.join(COMPILERS)}); the landings call the "
            "exported C code: install gcc or clang"
        )
    return found


def compile_force(model: Any, folder: Path) -> Force:
    """Export a fitted model of the force to C, compile it and load it.

    Parameters
    ----------
    model
        A fitted model with the named inputs and targets of `ground_effect`.
    folder
        For `force.c`, `force.h` and the library; it must exist while the function is used.
    """
    source, loop = folder / "force.c", folder / "force_rows.c"
    model.export(source, units=UNITS)
    loop.write_text(ROWS, "ascii")
    library = folder / "force.so"
    command = [find_compiler(), "-std=c99", "-O2", "-shared", "-fPIC", source, loop, "-o", library]
    subprocess.run([*command, "-lm"], check=True, capture_output=True)
    call = ctypes.CDLL(str(library.resolve())).force_rows
    outputs = len(ground_effect.TARGETS)

    def force(rows: Array) -> Array:
        rows = np.ascontiguousarray(rows, np.float64)
        found = np.empty((len(rows), outputs))
        x, y = (ctypes.c_void_p(a.ctypes.data) for a in (rows, found))
        call(x, y, ctypes.c_long(len(rows)))
        return found

    return force
