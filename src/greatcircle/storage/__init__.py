"""Save a fitted model to one file and load it again, without pickle and without JAX.

| module | contents |
|---|---|
| `describe` | a model as named arrays and texts |
| `rebuild` | a model from them, checked |
| `floats` | numbers as JSON values, which may be infinite or NaN |

`_runtime/container.py` packs arrays and texts into a safetensors file with a checksum. Loading runs
no code from a file: names in it are looked up in short lists, never imported. `docs/storage.md`
describes the format.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle._runtime.atomic import atomic_write, writable_path
from greatcircle._runtime.container import SUFFIX, pack, unpack
from greatcircle.model import Model, as_model
from greatcircle.storage.describe import describe
from greatcircle.storage.rebuild import json_section, rebuild

__all__ = ["encoded", "json_section", "load", "load_with_texts", "save"]


def save(model: Any, path: str | PathLike[str], texts: Mapping[str, str] | None = None) -> None:
    """Write a fitted model to a file, completely or not at all.

    Parameters
    ----------
    model
        A `Model`, or a fitted estimator (whose own `save` also keeps its parameters).
    path
        A name that ends in .safetensors, in a folder that exists. An existing file is replaced
        atomically: a reader sees the old one or the new one.
    texts
        Additional metadata strings, by name.

    Raises
    ------
    ValueError
        If the activation is a user's own code, which a file cannot hold.
    """
    path = _checked(_path(path))
    atomic_write(path, encoded(model, texts))


def encoded(model: Any, texts: Mapping[str, str] | None = None, *, certified: bool = True) -> bytes:
    """Return the bytes of the file of a model.

    Parameters
    ----------
    model, texts
        As in `save`.
    certified
        False leaves out the certificate, for a model whose bound cannot be computed. `load`
        refuses such a file; any reader of safetensors finds weights, scaling and history in it.
    """
    arrays, own = describe(as_model(model), certified=certified)
    data = pack(arrays, own | dict(texts or {}))
    if certified:  # a file that `load` would refuse must not replace anything
        rebuild(*unpack(data))
    return data


def load(path: str | PathLike[str]) -> Model:
    """Read a model, and verify its certificate for the weights and the scaling in the file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, altered, of a newer format, or not a greatcircle model.
    """
    return load_with_texts(path)[0]


def load_with_texts(path: str | PathLike[str]) -> tuple[Model, dict[str, str]]:
    """Read a model and all texts of its file."""
    path = _path(path)
    if path.is_dir():
        raise ValueError(f"path is '{path}', which is a folder; expected a {SUFFIX} file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"file not found: {path}; expected one written by greatcircle's save: check the "
            f"name and the folder, relative to {Path.cwd()}"
        ) from None
    try:
        arrays, texts = unpack(data)
        return rebuild(arrays, texts), texts
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error


def _path(path: Any) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(
            f"path is of type {type(path).__name__}; expected the name of a file, as in "
            f"save(model, 'model{SUFFIX}') and load('model{SUFFIX}')"
        )
    return Path(path)


def _checked(path: Path) -> Path:
    """Return the path to write to, after checking its name and folder."""
    if path.suffix != SUFFIX:
        raise ValueError(
            f"path is {str(path)!r}; expected a name that ends in {SUFFIX}: "
            f"try {(str(path) if path.name else 'model') + SUFFIX!r}"
        )
    return writable_path(path)
