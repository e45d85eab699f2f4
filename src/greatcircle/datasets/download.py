"""Download files into a cache and check them by their git blob id.

The git blob id identifies the bytes of a file in a git repository: the SHA-1 of ``blob <size>``, a
zero byte, and the contents. A file is downloaded into a temporary folder, checked there, and only
then moved into the cache. So the cache never holds a truncated, altered or half-written file,
whatever stops the download.
"""

import hashlib
import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

from greatcircle._runtime.extras import require

__all__ = ["TIMEOUT", "DownloadError", "blob_id", "cache_folder", "fetch", "github"]

TIMEOUT = 30.0  # s without data before a download fails


class DownloadError(OSError):
    """A file could not be downloaded, or is not the expected one."""


def fetch(url: str, name: str, git_blob: str, *, cache: str | PathLike[str] | None = None) -> Path:
    """Return the path of a file in the cache, after downloading it if necessary.

    Parameters
    ----------
    url : str
        Address of the file, http or https.
    name : str
        Name of the file in the cache, without folders.
    git_blob : str
        Its git blob id, 40 hexadecimal digits.
    cache : path, optional
        Folder of the cache. By default the environment variable GREATCIRCLE_CACHE, or the folder
        where the operating system keeps caches.

    Returns
    -------
    pathlib.Path
        A file with this git blob id. A file of the same name with another id is replaced.

    Raises
    ------
    DownloadError
        If the file cannot be downloaded. The cache then keeps nothing of it.
    """
    if name in ("", ".", "..") or name != Path(name).name:
        raise ValueError(
            f"fetch was given the name {name!r}; expected the name of a file without folders"
        )
    git_blob = git_blob.lower()
    folder = cache_folder() if cache is None else Path(cache)
    path = folder / name
    try:
        if path.is_file():
            if blob_id(path) == git_blob:
                return path
            path.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        # In the cache itself: a file can be moved in one step only within one file system.
        temporary = tempfile.TemporaryDirectory(dir=folder, prefix=".download-")
    except OSError as error:
        raise DownloadError(
            f"the cache folder {folder} cannot be used ({error}); expected a folder to write to: "
            "name another one in the environment variable GREATCIRCLE_CACHE"
        ) from error
    with temporary as inside:
        received = Path(inside) / name
        _download_checked(url, received, git_blob, path)
        os.replace(received, path)
    return path


def _download_checked(url: str, received: Path, git_blob: str, path: Path) -> None:
    """Download a file and check it; `path`, its final path, is named in errors."""
    # A file that the user saves at that path is checked like any file in the cache.
    by_hand = (
        f"download {url} by hand, and save it as {path} or give the loader the path of your copy"
    )
    try:
        _download(url, received)
    except OSError as error:  # includes the errors of requests
        raise DownloadError(
            f"{url} could not be downloaded ({error}); nothing was kept: check the connection "
            f"and try again, or {by_hand}"
        ) from error
    found = blob_id(received)
    if found != git_blob:
        raise DownloadError(
            f"{url} sent {received.stat().st_size} bytes with the git blob id {found}; "
            f"expected {git_blob}. The file was cut short, altered, or replaced by its authors; "
            f"nothing was kept: try again, or {by_hand}"
        )


def github(owner: str, repository: str, path: str, *, branch: str = "HEAD") -> str:
    """Return the address of the contents of a file in a GitHub repository.

    Parameters
    ----------
    owner, repository : str
        Owner and name of the repository.
    path : str
        The file, from the root of the repository.
    branch : str
        Branch, tag or commit. HEAD is the default branch, whatever its name.

    Returns
    -------
    str
        The address.
    """
    return f"https://raw.githubusercontent.com/{owner}/{repository}/{branch}/{path}"


def blob_id(path: str | PathLike[str]) -> str:
    """Return the git blob id of a file: 40 hexadecimal digits."""
    path = Path(path)
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of downloaded files: GREATCIRCLE_CACHE, or that of the operating system."""
    given = os.environ.get("GREATCIRCLE_CACHE")
    return Path(given or _pooch().os_cache("greatcircle"))


def _download(url: str, path: Path) -> None:
    # pooch's downloader without its registry, which does not support git blob ids and writes to
    # standard error. Not streamed: a response that fails half way would stay open until it is
    # garbage collected. The files have a few megabytes.
    downloader = _pooch().HTTPDownloader(timeout=TIMEOUT, chunk_size=1 << 16, stream=False)
    downloader(url, str(path), None)


def _pooch() -> Any:
    return require("pooch", "app", "downloading data")
