"""Downloads from a server on this machine: resumed, verified, whole or absent."""

import errno
import hashlib
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

pytest.importorskip("pooch")
pytest.importorskip("h5py")

from chonn_lab.problems import darcy, download

CONTENT = bytes(range(256)) * 2000
HASH = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
CUT = 150_000


class Server(ThreadingHTTPServer):
    """Serves CONTENT; ``cuts`` connections are closed after CUT bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.status, self.cuts, self.shift = True, 200, 0, 0
        self.requested = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.requested.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = 0
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            first = start + server.shift
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        body = CONTENT[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            body = body[:CUT]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    server = Server()
    # A short poll: shutdown() waits for one.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(darcy, "OFFICIAL_URL", server.url)
    monkeypatch.setattr(darcy, "OFFICIAL_HASH", HASH)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def fetch(tmp_path):
    return lambda **options: darcy.fetch(tmp_path / "data.hdf5", progress=False, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_complete(folder):
    assert names(folder) == ["data.hdf5"]
    assert (folder / "data.hdf5").read_bytes() == CONTENT


def test_plain_download(server, fetch, tmp_path):
    assert fetch() is True
    assert_complete(tmp_path)
    assert server.requested == [None]


def test_resumes_where_an_earlier_call_stopped(server, fetch, tmp_path):
    (tmp_path / "data.hdf5.part").write_bytes(CONTENT[:1000])
    assert fetch() is True
    assert_complete(tmp_path)
    assert server.requested == ["bytes=1000-"]


def test_starts_over_if_the_server_ignores_ranges(server, fetch, tmp_path):
    server.ranges = False
    (tmp_path / "data.hdf5.part").write_bytes(b"old" * 100)
    fetch()
    assert_complete(tmp_path)
    assert server.requested == ["bytes=300-"]


def test_cut_connection_is_taken_up_again(server, fetch, tmp_path):
    server.cuts = 1
    fetch()
    assert_complete(tmp_path)
    first, second = server.requested
    assert first is None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= CUT


def test_dead_connection_keeps_what_arrived_for_the_next_call(server, fetch, tmp_path):
    server.cuts = download.ATTEMPTS
    with pytest.raises(ConnectionError, match=r"bytes are kept in .*data\.hdf5\.part: the same"):
        fetch()
    assert names(tmp_path) == ["data.hdf5.part"]
    kept = (tmp_path / "data.hdf5.part").read_bytes()
    assert kept == CONTENT[: len(kept)]
    assert len(kept) > CUT
    fetch()
    assert_complete(tmp_path)
    assert server.requested[-1] == f"bytes={len(kept)}-"


def test_part_that_is_whole_already(server, fetch, tmp_path):
    (tmp_path / "data.hdf5.part").write_bytes(CONTENT)
    fetch()
    assert_complete(tmp_path)
    assert server.requested == [f"bytes={len(CONTENT)}-"]


def test_part_of_a_longer_file_is_dropped(server, fetch, tmp_path):
    (tmp_path / "data.hdf5.part").write_bytes(CONTENT + b"more")
    fetch()
    assert_complete(tmp_path)
    assert server.requested == [f"bytes={len(CONTENT) + 4}-", None]


def test_answer_with_another_range_is_not_appended(server, fetch, tmp_path):
    server.shift = 1
    (tmp_path / "data.hdf5.part").write_bytes(CONTENT[:1000])
    fetch()
    assert_complete(tmp_path)
    assert server.requested == ["bytes=1000-", None]


@pytest.mark.usefixtures("server")
def test_wrong_checksum_leaves_nothing(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(darcy, "OFFICIAL_HASH", f"md5:{'0' * 32}")
    with pytest.raises(ValueError, match="does not match the known hash"):
        fetch()
    assert names(tmp_path) == []


@pytest.mark.parametrize("status", [404, 503])
def test_http_error_leaves_nothing(server, fetch, tmp_path, status):
    server.status = status
    with pytest.raises(ConnectionError, match=f"download failed: {status}"):
        fetch()
    assert names(tmp_path) == []
    assert len(server.requested) == 1


def test_no_server(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(darcy, "OFFICIAL_URL", "http://127.0.0.1:9/file")
    with pytest.raises(ConnectionError, match=r"\); nothing has arrived$"):
        fetch()
    assert names(tmp_path) == []


def test_server_that_sends_nothing_leaves_nothing(server, fetch, tmp_path, monkeypatch):
    server.cuts = download.ATTEMPTS
    monkeypatch.setattr(sys.modules[__name__], "CUT", 0)
    with pytest.raises(ConnectionError, match=r"; nothing has arrived$"):
        fetch()
    assert names(tmp_path) == []


def test_disk_too_small_for_the_file(server, fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    message = r"512,000 bytes are needed and 1,000 free: .*; nothing has arrived$"
    with pytest.raises(OSError, match=message) as error:
        fetch()
    assert error.value.errno == errno.ENOSPC
    assert names(tmp_path) == []
    assert server.requested == [None]


@pytest.mark.usefixtures("server")
def test_disk_that_fills_meanwhile_keeps_what_arrived(fetch, tmp_path, monkeypatch):
    class FullBar(download.ProgressBar):
        def update(self, _count):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "ProgressBar", FullBar)
    message = r"No space left on device: .*; [\d,]+ bytes are kept in .*data\.hdf5\.part: the same"
    with pytest.raises(OSError, match=message):
        fetch()
    assert names(tmp_path) == ["data.hdf5.part"]


def test_killed_while_the_checksum_is_computed(server, fetch, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(download.pooch, "file_hash", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fetch()
    assert names(tmp_path) == ["data.hdf5.part"]
    fetch()
    assert_complete(tmp_path)
    assert server.requested == [None, f"bytes={len(CONTENT)}-"]


def test_right_file_is_left_alone(server, fetch, tmp_path):
    (tmp_path / "data.hdf5").write_bytes(CONTENT)
    assert fetch() is False
    assert fetch(force=True) is False
    assert server.requested == []


def test_other_file_is_replaced_only_with_force(server, fetch, tmp_path):
    (tmp_path / "data.hdf5").write_text("mine")
    with pytest.raises(FileExistsError, match=r"is another one: .*data\.hdf5 \(md5 [0-9a-f]{32}"):
        fetch()
    assert (tmp_path / "data.hdf5").read_text() == "mine"
    assert server.requested == []
    assert fetch(force=True) is True
    assert_complete(tmp_path)


def test_failed_replacement_keeps_the_old_file(server, fetch, tmp_path):
    (tmp_path / "data.hdf5").write_text("mine")
    server.status = 404
    with pytest.raises(ConnectionError):
        fetch(force=True)
    assert (tmp_path / "data.hdf5").read_text() == "mine"


@pytest.mark.usefixtures("server")
def test_interrupt_keeps_the_part(fetch, tmp_path, monkeypatch):
    class InterruptedBar:
        def __init__(self, **_):
            self.updates = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, _count):
            self.updates += 1
            if self.updates == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(download, "ProgressBar", InterruptedBar)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert names(tmp_path) == ["data.hdf5.part"]
    assert (tmp_path / "data.hdf5.part").stat().st_size == 2 * download.CHUNK


def test_official_checksum_is_pdebenchs():
    assert darcy.OFFICIAL_HASH.startswith("md5:81694ed3")
    assert darcy.OFFICIAL_URL.endswith("/133219")
    assert darcy.default_name(1) == darcy.OFFICIAL_NAME
