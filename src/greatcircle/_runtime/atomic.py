"""Atomic writes: a file, or several files of a folder, replaced completely or not at all."""

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_write", "atomic_write_all", "check_replaceable", "writable_path"]


def writable_path(path: Path) -> Path:
    """Check that a file can be written here; return the path with symbolic links resolved.

    Writing to the resolved path keeps the links.
    """
    path = path.resolve()
    if path.is_dir():
        raise ValueError(f"path is {str(path)!r}, which is a folder; expected the name of a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path is {str(path)!r}, and the folder {str(path.parent)!r} does not exist; "
            "create it first"
        )
    return path


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file in one step: after a crash there is the old file or the new one."""
    temporary = _temporary_in(path.parent)
    try:
        with _naming(path):
            _write_flushed(temporary, data, path)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def atomic_write_all(
    folder: Path, files: Mapping[str, bytes], remove: Collection[str] = ()
) -> None:
    """Write files into a folder: all of them or, after an error, none.

    The bytes go to a temporary folder first, so that a full disk changes nothing. `remove` names
    files to delete in the same step, if they exist.
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
    """Raise an error if one of the files to write is a folder or read-only."""
    for path in (folder / name for name in names):
        if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
            kind = "a folder" if path.is_dir() else "read-only"
            raise ValueError(
                f"{path} is {kind}; expected a file that can be replaced, or no file: move it "
                "away, or write to another folder"
            )


def _temporary_in(folder: Path) -> Path:
    return folder / f".greatcircle-{secrets.token_hex(8)}.tmp"


def _write_flushed(path: Path, data: bytes, replaced: Path) -> None:
    """Write a new file and flush it to the disk; copy the permissions of the file it replaces."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if replaced.exists():
        shutil.copymode(replaced, path)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make an OSError name the file, and not the temporary file or, as for a full disk, no file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        del error.filename2
        raise


def _sync_folder(folder: Path) -> None:
    """Flush the folder, so that the new name survives a power cut (only POSIX can)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
