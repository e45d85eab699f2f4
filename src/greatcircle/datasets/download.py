"""Files from the network: the only place that downloads.

A file is known by its git blob id, which identifies the bytes of every file in a git repository:
the SHA-1 of ``blob <size>``, a zero byte, and the contents. It is downloaded into a temporary
folder, checked there, and only then moved to its place in the cache. So the cache never holds a
file that is truncated, altered or half written, whatever stops the download.
"""

import hashlib
import os
import tempfile
from os import PathLike
from pathlib import Path

TIMEOUT = 30.0  # s, of silence on the line before a download counts as failed


class DownloadError(OSError):
    """A file could not be had from the network, or is not the one expected."""


def fetch(url: str, name: str, git_blob: str, *, cache: str | PathLike[str] | None = None) -> Path:
    """Find a file in the cache, or download it there.

    Parameters
    ----------
    url : str
        Address of the file, http or https.
    name : str
        Name of the file in the cache, without folders.
    git_blob : str
        Its git blob id, 40 hexadecimal digits.
    cache : path, optional
        Folder of the cache. If not given, the environment variable GREATCIRCLE_CACHE names it, or
        it is where the operating system keeps the caches of programs.

    Returns
    -------
    pathlib.Path
        A file with that git blob id. A file of that name with another one is replaced.

    Raises
    ------
    DownloadError
        If the file cannot be had. Nothing is left in the cache then.
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
        # In the cache itself, as a file can be moved in one step only within one file system.
        temporary = tempfile.TemporaryDirectory(dir=folder, prefix=".download-")
    except OSError as error:
        raise DownloadError(
            f"the cache folder {folder} cannot be used ({error}); expected a folder to write to: "
            "name another one in the environment variable GREATCIRCLE_CACHE"
        ) from error
    # Saved by hand at that path, the file is checked like any file in the cache.
    by_hand = (
        f"download {url} by hand, and save it as {path} or give the loader the path of your copy"
    )
    with temporary as inside:
        received = Path(inside) / name
        try:
            _download(url, received)
        except OSError as error:  # those of requests are among them
            raise DownloadError(
                f"{url} could not be downloaded ({error}); nothing was kept: check the connection "
                f"and try again, or {by_hand}"
            ) from error
        found = blob_id(received)
        if found != git_blob:
            raise DownloadError(
                f"{url} sent {received.stat().st_size} bytes with the git blob id {found}; "
                f"expected {git_blob}. The file was cut short, altered on the way, or replaced by "
                f"its authors; nothing was kept: try again, or {by_hand}"
            )
        os.replace(received, path)
    return path


def github(owner: str, repository: str, path: str, *, branch: str = "HEAD") -> str:
    """Address of the contents of a file in a GitHub repository.

    Parameters
    ----------
    owner, repository : str
        Whose repository, and its name.
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
    """Git blob id of a file: 40 hexadecimal digits."""
    path = Path(path)
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Folder of the downloaded files: GREATCIRCLE_CACHE, or the operating system's own place."""
    import pooch

    return Path(os.environ.get("GREATCIRCLE_CACHE") or pooch.os_cache("greatcircle"))


def _download(url: str, path: Path) -> None:
    # pooch's downloader without pooch's registry: that one knows no git blob ids, and announces on
    # standard error what it does.
    import pooch

    # Not streamed: a response that fails half way would stay open until it is collected. The files
    # are of a few megabytes.
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=1 << 16, stream=False)
    downloader(url, str(path), None)
