"""Save a fitted model to one file and load it again, without pickle.

| module | idea |
|---|---|
| `contents` | a model as named arrays and named texts, and back |
| `values` | an estimator's parameters as JSON, and back |

`sealed.py` makes arrays and texts a safetensors file with a checksum, written at once. Loading runs
nothing that a file could bring along: names in it are looked up in short lists, never imported.
`docs/storage.md` describes the format.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from greatcircle._runtime.container import SUFFIX, opened, place, sealed, write
from greatcircle.estimators import LipschitzClassifier, LipschitzRegressor
from greatcircle.storage.contents import describe, rebuild

__all__ = ["encoded", "load", "save"]


def save(model: BaseEstimator, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a file, all of it or nothing.

    Parameters
    ----------
    model
        A fitted `LipschitzRegressor` or `LipschitzClassifier`. `callbacks`, a `random_state` that
        is an object and what the direction remembers are left out (`docs/storage.md`).
    path
        Where to; the name ends in .safetensors, and the folder exists. A file that is there is
        replaced at once: who reads it meanwhile sees the old one or the new one.

    Raises
    ------
    ValueError
        Where the model holds a user's own code (activation, loss, direction, step): a file cannot.
    """
    path = _checked(_path(path))
    write(path, encoded(model))


def encoded(model: BaseEstimator, *, certified: bool = True) -> bytes:
    """Return the bytes of the file of a fitted estimator.

    Parameters
    ----------
    model
        As in `save`.
    certified
        False leaves out the certificate, for a model whose bound cannot be computed. `load`
        refuses such a file; any reader of safetensors finds weights, scaling and history in it.
    """
    data = sealed(*describe(model, certified=certified))
    if certified:  # nothing is replaced by a file that would be refused
        rebuild(*opened(data))
    return data


def load(path: str | PathLike[str]) -> LipschitzRegressor | LipschitzClassifier:
    """Read the estimator that `save` wrote.

    It predicts bit for bit like the saved one. Its certificate has been verified
    for the weights and the scaling in the file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FileNotFoundError
        Where there is no such file.
    ValueError
        Where the file is damaged, altered, of a newer format, or no greatcircle model at all.
    """
    path = _path(path)
    if path.is_dir():
        raise ValueError(f"path is '{path}', which is a folder; expected a {SUFFIX} file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {path}; expected one that greatcircle's save wrote: check the "
            f"name and the folder, which is seen from {Path.cwd()}"
        ) from None
    try:
        return rebuild(*opened(data))
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error


def _path(path: Any) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(
            f"path is a {type(path).__name__}; expected the name of a file, as in "
            f"save(model, 'model{SUFFIX}') and load('model{SUFFIX}')"
        )
    return Path(path)


def _checked(path: Path) -> Path:
    """A place for a model."""
    if path.suffix != SUFFIX:
        raise ValueError(
            f"path is {str(path)!r}; expected a name that ends in {SUFFIX}: "
            f"try {(str(path) if path.name else 'model') + SUFFIX!r}"
        )
    return place(path)
