"""The file format of models and checkpoints: arrays, texts and a checksum in a safetensors file.

A safetensors file is the length of a header (eight bytes, little endian), the header (JSON: the
texts under `__metadata__`, then type, shape and offsets of each array), and the bytes of the
arrays. The checksum is one of the texts: BLAKE2b over the whole file, with zeros in place of the
checksum. It covers every byte, even the spaces that pad the header.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from greatcircle._runtime.versions import __version__

__all__ = ["SUFFIX", "Tensors", "Texts", "pack", "unpack"]

SUFFIX = ".safetensors"
FORMAT = "greatcircle"
VERSION = 1
"""Version of the format; raise it when an older library would misread new files."""

Tensors = dict[str, np.ndarray]
Texts = dict[str, str]

_LENGTH_BYTES = 8
_DIGEST_BYTES = 32
_NO_CHECKSUM = "0" * 2 * _DIGEST_BYTES
_RESERVED = {"format": FORMAT, "format_version": str(VERSION), "checksum": _NO_CHECKSUM}
_TYPES = ("BOOL", *(f"{kind}{bits}" for kind in "IU" for bits in (8, 16, 32, 64)),
          "F16", "F32", "F64")  # fmt: skip


def pack(tensors: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> bytes:
    """Return the bytes of a file with these arrays and texts; equal content gives equal bytes."""
    # safetensors copies the memory of an array as it is, and writes texts in arbitrary order.
    plain = safetensors.save({name: np.array(t, order="C") for name, t in tensors.items()})
    end = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "little")
    header = {"__metadata__": _RESERVED | dict(texts)} | json.loads(plain[_LENGTH_BYTES:end])
    encoded = json.dumps(header, separators=(",", ":")).encode("ascii")
    encoded += b" " * (-len(encoded) % _LENGTH_BYTES)  # keep the arrays aligned
    blank = len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded + plain[end:]
    return blank.replace(_field(_NO_CHECKSUM), _field(_digest(blank)), 1)


def unpack(data: bytes) -> tuple[Tensors, Texts]:
    """Return the arrays and texts of a file, or raise a ValueError that says what is wrong."""
    header = _header(data)
    texts = _texts(header)
    _check_version(texts)
    _check_checksum(data, texts.get("checksum", ""))
    for name, entry in header.items():
        kind = entry.get("dtype") if isinstance(entry, dict) else None
        if name != "__metadata__" and kind not in _TYPES:
            raise ValueError(f"its array {name!r} is of type {kind!r}; expected numbers")
    try:
        tensors = {name: np.array(t) for name, t in safetensors.load(data).items()}
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"it is not a valid safetensors file ({error})") from error
    return tensors, {name: text for name, text in texts.items() if name not in _RESERVED}


def _header(data: bytes) -> dict[str, Any]:
    if len(data) < _LENGTH_BYTES:
        raise ValueError(f"it has {len(data)} bytes, fewer than any safetensors file")
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if end > len(data):
        raise ValueError(
            f"it has {len(data)} bytes and its header would end at byte {end}: it was cut short, "
            "or it is not a safetensors file"
        )
    try:
        header = json.loads(data[_LENGTH_BYTES:end].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"its header is not JSON ({error}): it was altered, or it is not a safetensors file"
        ) from error
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}; expected a JSON object")
    return header


def _texts(header: dict[str, Any]) -> Texts:
    texts = header.get("__metadata__")
    if not isinstance(texts, dict) or texts.get("format") != FORMAT:
        raise ValueError(
            "it is a safetensors file, but not a greatcircle model: its metadata lack "
            f"format={FORMAT!r}"
        )
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"its metadata contain {name}={text!r}; expected text")
    return texts


def _check_version(texts: Texts) -> None:
    version = texts.get("format_version", "")
    if version == str(VERSION):
        return
    raise ValueError(
        f"it has format version {version[:20]!r}, written by {_writer(texts)}; this is greatcircle "
        f"{__version__}, which reads version {VERSION}: use the version that wrote it, or "
        "a newer one"
    )


def _writer(texts: Texts) -> str:
    """Return the version that wrote a file, whose texts may be damaged."""
    try:
        return f"greatcircle {str(json.loads(texts['versions'])['greatcircle'])[:40]}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return "an unknown version of greatcircle"


def _check_checksum(data: bytes, checksum: str) -> None:
    field = _field(checksum)
    blank = data.replace(field, _field(_NO_CHECKSUM), 1)
    if len(checksum) != len(_NO_CHECKSUM) or data.count(field) != 1 or _digest(blank) != checksum:
        raise ValueError(
            "its checksum does not match its content: it was altered or cut short after it was "
            "written; use an intact copy, or write the file again"
        )


def _field(checksum: str) -> bytes:
    """Return the bytes of the checksum's entry in the header."""
    return f'"checksum":{json.dumps(checksum)}'.encode("ascii")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
