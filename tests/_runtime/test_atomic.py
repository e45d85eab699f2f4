"""Atomic writes: all files or none."""

import os
from pathlib import Path

import pytest

from greatcircle._runtime.atomic import atomic_write, atomic_write_all, writable_path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_are_replaced_and_removed_together(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", b"old")
    atomic_write(tmp_path / "b", b"old")
    atomic_write_all(tmp_path, {"a": b"new", "c": b"new"}, remove=["b", "missing"])
    assert content(tmp_path) == {"a": b"new", "c": b"new"}


@pytest.mark.parametrize("call", range(4))
def test_after_an_error_the_old_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    old = {"a": b"old", "b": b"old"}
    atomic_write_all(tmp_path, old)
    rename, calls = os.rename, 0

    def failing(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls == call + 1:
            raise OSError(28, "No space left on device", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic_write_all(tmp_path, {"a": b"new", "c": b"new"}, remove=["b"])
    assert Path(caught.value.filename).parent == tmp_path
    assert content(tmp_path) == old


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; expected the name of a file"):
        writable_path(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        writable_path(tmp_path / "none" / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        ValueError, match="folder is a folder; expected a file that can be replaced"
    ):
        atomic_write_all(tmp_path, {"folder": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
