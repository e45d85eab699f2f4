"""Downloads, against a real server on this machine that serves good, cut, altered, missing and
stalled files: whatever happens, the cache holds a verified file or nothing.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from test_neural_lander import on_the_grid, record

from greatcircle.datasets import DownloadError, download, neural_lander

GOOD = b"t,z\n" + b"0.01,1.5\n" * 40_000  # larger than one chunk of the downloader


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Server:
    """What the handler serves, and how often each path was asked for."""

    address: str = ""
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


def send(handler: BaseHTTPRequestHandler, data: bytes, *, length: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = Server()

    def stall(handler: BaseHTTPRequestHandler) -> None:
        send(handler, GOOD[:1000], length=len(GOOD))
        handler.wfile.flush()
        state.over.wait(20)

    state.answers = {
        "good.csv": lambda handler: send(handler, GOOD),
        "tampered.csv": lambda handler: send(handler, GOOD.replace(b"1.5", b"1.6", 1)),
        "empty.csv": lambda handler: send(handler, b""),
        "truncated.csv": lambda handler: send(handler, GOOD[:-5000], length=len(GOOD)),
        # The server itself says that this is all.
        "short.csv": lambda handler: send(handler, GOOD[:-5000]),
        "broken.csv": lambda handler: handler.send_error(500),
        "stalled.csv": stall,
        "refused.csv": lambda handler: None,  # hangs up without a word
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            state.requests[name] += 1
            answer = state.answers.get(name)
            if answer is None:
                self.send_error(404)
            else:
                answer(self)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that hangs up is what some tests are about

    with Quiet(("127.0.0.1", 0), Handler) as httpd:
        state.address = f"http://127.0.0.1:{httpd.server_address[1]}"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield state
        state.over.set()
        httpd.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GREATCIRCLE_CACHE", str(folder))
    return folder


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_good_file_is_downloaded_once(server: Server, cache: Path) -> None:
    path = download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD))
    assert path == cache / "data.csv"
    assert path.read_bytes() == GOOD
    assert contents(cache) == ["data.csv"]
    again = download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD).upper())
    assert again == path
    assert server.requests["good.csv"] == 1


FAILURES = {
    "tampered.csv": r"sent \d+ bytes with the git blob id",
    "short.csv": "cut short, altered, or replaced",
    "empty.csv": "sent 0 bytes",
    "truncated.csv": "could not be downloaded",
    "missing.csv": "could not be downloaded .*404",
    "broken.csv": "could not be downloaded .*500",
    "stalled.csv": "could not be downloaded .*timed out",
    "refused.csv": "could not be downloaded",
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_leaves_nothing_and_says_what_to_do(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "stalled.csv":  # others must not time out on a busy machine
        monkeypatch.setattr(download, "TIMEOUT", 0.5)
    with pytest.raises(DownloadError, match=FAILURES[name]) as caught:
        download.fetch(server.url(name), "data.csv", git_blob(GOOD))
    assert contents(cache) == []
    message = str(caught.value)
    for help_text in (server.url(name), "try again", "by hand", str(cache / "data.csv"), "path"):
        assert help_text in message
    # And then, as the message says.
    (cache / "data.csv").write_bytes(GOOD)
    assert download.fetch(server.url(name), "data.csv", git_blob(GOOD)) == cache / "data.csv"
    assert server.requests[name] == 1


def test_no_server_at_all(cache: Path, server: Server) -> None:
    with pytest.raises(DownloadError, match=r"could not be downloaded.*check the connection"):
        download.fetch("http://127.0.0.1:9/data.csv", "data.csv", git_blob(GOOD))
    assert contents(cache) == []


def test_an_address_that_is_none(cache: Path) -> None:
    with pytest.raises(DownloadError, match="could not be downloaded"):
        download.fetch("nowhere", "data.csv", git_blob(GOOD))
    assert contents(cache) == []


@pytest.mark.parametrize("stored", [GOOD[:-1], GOOD + b"\n", b""])
def test_an_altered_cache_is_fetched_again(server: Server, cache: Path, stored: bytes) -> None:
    cache.mkdir()
    (cache / "data.csv").write_bytes(stored)
    path = download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD))
    assert path.read_bytes() == GOOD
    assert server.requests["good.csv"] == 1


def test_an_altered_cache_does_not_survive_a_failure(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "data.csv").write_bytes(GOOD[:-1])
    with pytest.raises(DownloadError):
        download.fetch(server.url("missing.csv"), "data.csv", git_blob(GOOD))
    assert contents(cache) == []


def test_an_interrupt_leaves_nothing(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(url: str, path: Path) -> None:
        path.write_bytes(GOOD[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD))
    assert contents(cache) == []


def test_two_at_once_both_get_the_file(server: Server, cache: Path) -> None:
    paths: list[Path] = []

    def work() -> None:
        paths.append(download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [cache / "data.csv"] * 4
    assert contents(cache) == ["data.csv"]
    assert paths[0].read_bytes() == GOOD


def test_the_cache_can_be_named(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = download.fetch(
        server.url("good.csv"), "data.csv", git_blob(GOOD), cache=tmp_path / "other"
    )
    assert path.parent == tmp_path / "other"
    assert not cache.exists()
    assert download.cache_folder() == cache
    monkeypatch.setenv("GREATCIRCLE_CACHE", "")
    assert download.cache_folder().name == "greatcircle"


def test_a_cache_that_is_no_folder(server: Server, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DownloadError, match=r"cannot be used.*GREATCIRCLE_CACHE"):
        download.fetch(server.url("good.csv"), "data.csv", git_blob(GOOD), cache=blocked)
    assert not server.requests


@pytest.mark.parametrize("name", ["", "a/b.csv", "../b.csv", ".."])
def test_names_stay_in_the_cache(cache: Path, name: str) -> None:
    with pytest.raises(ValueError, match="without folders"):
        download.fetch("http://127.0.0.1:9/", name, git_blob(GOOD))


def test_blob_id_is_that_of_git(tmp_path: Path) -> None:
    # `git hash-object` of an empty file and of "hello\n".
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert download.blob_id(path) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    path.write_bytes(b"hello\n")
    assert download.blob_id(path) == "ce013625030ba8dba906f756967f9e9ca394464a"


# The loaders, as far as this machine can go


def test_sources_of_neural_lander() -> None:
    assert neural_lander.TABLE.url == (
        "https://raw.githubusercontent.com/nhcho91/ASGD/HEAD/neural_lander_data.csv"
    )
    assert neural_lander.MOTORS.url == (
        "https://raw.githubusercontent.com/GuanyaShi/neural_lander_sim_1d/HEAD/realdata/"
        "free_flying_low/_slash_mavros_slash_rc_slash_out.csv"
    )
    sources = (
        neural_lander.TABLE,
        neural_lander.POSE,
        neural_lander.VELOCITY,
        neural_lander.MOTORS,
    )
    assert all(len(bytes.fromhex(source.git_blob)) == 20 for source in sources)
    assert len({Path(source.path).name for source in sources}) == 4


def serve(
    server: Server, monkeypatch: pytest.MonkeyPatch, attribute: str, data: bytes
) -> neural_lander.Source:
    """Put a source of the loader on the local server, with the blob id of these bytes."""
    original: neural_lander.Source = getattr(neural_lander, attribute)
    source = neural_lander.Source(
        original.owner, original.repository, original.path, git_blob(data)
    )
    monkeypatch.setattr(neural_lander, attribute, source)
    monkeypatch.setattr(
        download, "github", lambda owner, repository, path: server.url(path.rsplit("/", 1)[-1])
    )
    server.answers[Path(original.path).name] = lambda handler: send(handler, data)
    return source


def test_neural_lander_is_downloaded_checked_and_kept(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(48.0).reshape(3, 16)
    data = "\n".join(",".join(map(str, row)) for row in rows).encode()
    source = serve(server, monkeypatch, "TABLE", data)
    for _ in range(2):
        np.testing.assert_array_equal(neural_lander.load().y, rows[:, 13:])
    assert server.requests[source.path] == 1

    (cache / source.path).unlink()
    server.answers[source.path] = lambda handler: send(handler, data + b" ")
    with pytest.raises(DownloadError, match="git blob id"):
        neural_lander.load()
    assert contents(cache) == []


def test_the_raw_flight_is_downloaded_and_built(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = record(tmp_path, on_the_grid)
    for attribute, path in zip(("POSE", "VELOCITY", "MOTORS"), paths, strict=True):
        serve(server, monkeypatch, attribute, path.read_bytes())
    # The files get there; that this flight of 8 s ends before the published times is then seen.
    with pytest.raises(ValueError, match=r"from 0.00 s to 8.00 s; expected all of 35.00 s"):
        neural_lander.load_raw()
    assert len(contents(cache)) == 3
    assert sum(server.requests.values()) == 3
