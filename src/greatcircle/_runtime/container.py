"""Arrays and texts as the bytes of a safetensors file, sealed by a checksum; and files, atomically.

A safetensors file is the length of a header (eight bytes, little endian), the header (JSON: the
texts under `__metadata__`, then type, shape and place of each array), and the arrays' bytes. The
checksum is one of the texts: BLAKE2b over the whole file with zeros in the checksum's place. So no
byte is left out, not even the spaces that fill up the header.
"""

import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from greatcircle._runtime.versions import __version__

SUFFIX = ".safetensors"
FORMAT = "greatcircle"
VERSION = 1
"""Of the format: what an older library would misread needs a higher one."""

Tensors = dict[str, np.ndarray]
Texts = dict[str, str]

_LENGTH = 8
_DIGEST = 32
_BLANK = "0" * 2 * _DIGEST
_OWN = {"format": FORMAT, "format_version": str(VERSION), "checksum": _BLANK}
_TYPES = ("BOOL", *(f"{kind}{bits}" for kind in "IU" for bits in (8, 16, 32, 64)),
          "F16", "F32", "F64")  # fmt: skip


def sealed(tensors: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> bytes:
    """The file's bytes; the same model gives the same bytes."""
    # The library takes the arrays' memory as it lies, and wants the texts in no order.
    plain = safetensors.save({name: np.array(t, order="C") for name, t in tensors.items()})
    end = _LENGTH + int.from_bytes(plain[:_LENGTH], "little")
    header = {"__metadata__": _OWN | dict(texts)} | json.loads(plain[_LENGTH:end])
    encoded = json.dumps(header, separators=(",", ":")).encode("ascii")
    encoded += b" " * (-len(encoded) % _LENGTH)  # the arrays stay aligned
    blank = len(encoded).to_bytes(_LENGTH, "little") + encoded + plain[end:]
    return blank.replace(_field(_BLANK), _field(_digest(blank)), 1)


def opened(data: bytes) -> tuple[Tensors, Texts]:
    """The way back; a ValueError says what is wrong with the bytes."""
    header = _header(data)
    texts = _texts(header)
    _check_version(texts)
    _check_seal(data, texts.get("checksum", ""))
    for name, entry in header.items():
        kind = entry.get("dtype") if isinstance(entry, dict) else None
        if name != "__metadata__" and kind not in _TYPES:
            raise ValueError(f"its array {name!r} is of type {kind!r}; expected a number's")
    try:
        tensors = {name: np.array(t) for name, t in safetensors.load(data).items()}
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"it is no valid safetensors file ({error})") from error
    return tensors, {name: text for name, text in texts.items() if name not in _OWN}


def place(path: Path) -> Path:
    """Where a file can be written; symbolic links are followed, so that they stay links."""
    path = path.resolve()
    if path.is_dir():
        raise ValueError(f"path is {str(path)!r}, which is a folder; expected a file's name")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path is {str(path)!r}, and the folder {str(path.parent)!r} does not exist; "
            "create it first"
        )
    return path


def write(path: Path, data: bytes) -> None:
    """Put the bytes there at once: a reader, or a crash, finds the old file or the new one."""
    temporary = _temporary_in(path.parent)
    try:
        with _naming(path):
            _write_flushed(temporary, data, path)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_all(folder: Path, files: Mapping[str, bytes], remove: Collection[str] = ()) -> None:
    """Put files into a folder together: all of them or, after an error, none.

    The bytes go to a temporary folder first, so that a full disk changes nothing. `remove` names
    files that go away in the same step, where they are there.
    """
    check_replaceable(folder, (*files, *remove))
    temporary = _temporary_in(folder)
    new, old = temporary / "new", temporary / "old"
    moves: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        os.rename(source, target)
        moves.append((source, target))

    try:
        with _naming(folder):
            new.mkdir(parents=True)
            old.mkdir()
        for name, data in files.items():
            with _naming(folder / name):
                _write_flushed(new / name, data, folder / name)
        for name in dict.fromkeys((*files, *remove)):
            with _naming(folder / name):
                if os.path.lexists(folder / name):
                    move(folder / name, old / name)
                if name in files:
                    move(new / name, folder / name)
    except BaseException:
        for source, target in reversed(moves):
            os.rename(target, source)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync_folder(folder)


def check_replaceable(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder, or a file without write permission, in the place of a file to write."""
    for path in (folder / name for name in names):
        if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
            kind = "a folder" if path.is_dir() else "read-only"
            raise ValueError(
                f"{path} is {kind}; expected a file that can be replaced, or none: move it away, "
                "or write to another folder"
            )


def _header(data: bytes) -> dict[str, Any]:
    if len(data) < _LENGTH:
        raise ValueError(f"it has {len(data)} bytes, fewer than any safetensors file")
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if end > len(data):
        raise ValueError(
            f"it has {len(data)} bytes and its header would end at byte {end}: it was cut short, "
            "or it is no safetensors file"
        )
    try:
        header = json.loads(data[_LENGTH:end].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"its header is not JSON ({error}): it was altered, or it is no safetensors file"
        ) from error
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}; expected a JSON object")
    return header


def _texts(header: dict[str, Any]) -> Texts:
    texts = header.get("__metadata__")
    if not isinstance(texts, dict) or texts.get("format") != FORMAT:
        raise ValueError(
            "it is a safetensors file, but no greatcircle model: its metadata lack "
            f"format={FORMAT!r}"
        )
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"its metadata have {name}={text!r}; expected text")
    return texts


def _check_version(texts: Texts) -> None:
    version = texts.get("format_version", "")
    if version == str(VERSION):
        return
    raise ValueError(
        f"it has format version {version[:20]!r}, written by {_writer(texts)}; this is greatcircle "
        f"{__version__}, which reads version {VERSION}: use the one that wrote it, or "
        "a newer one"
    )


def _writer(texts: Texts) -> str:
    """Which library wrote a file that may not be what we expect."""
    try:
        return f"greatcircle {str(json.loads(texts['versions'])['greatcircle'])[:40]}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return "an unknown version of greatcircle"


def _check_seal(data: bytes, checksum: str) -> None:
    field = _field(checksum)
    blank = data.replace(field, _field(_BLANK), 1)
    if len(checksum) != len(_BLANK) or data.count(field) != 1 or _digest(blank) != checksum:
        raise ValueError(
            "its checksum does not match its content: it was altered or cut short after it was "
            "written; take another copy, or save the model again"
        )


def _field(checksum: str) -> bytes:
    """How the checksum stands in the header."""
    return f'"checksum":{json.dumps(checksum)}'.encode("ascii")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST).hexdigest()


def _temporary_in(folder: Path) -> Path:
    return folder / f".greatcircle-{secrets.token_hex(8)}.tmp"


def _write_flushed(path: Path, data: bytes, replaced: Path) -> None:
    """Write a new file to the disk, with the permissions of the one that it will replace."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if replaced.exists():
        shutil.copymode(replaced, path)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make an OSError name the file: one of a full disk names none, others the temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2
        raise


def _sync_folder(folder: Path) -> None:
    """The new name outlives a power cut, too. Only POSIX lets one open a folder for that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
