"""Downloads from a server on this machine: verified, whole or absent."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("pooch")
pytest.importorskip("h5py")

from chonn_lab.problems import darcy, download

CONTENT = bytes(range(256)) * 2000
HASH = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves the first `sent` bytes of CONTENT."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.sent, self.requests = 200, len(CONTENT), 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests += 1
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: self.server.sent])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    server = Server()
    # A short poll: shutdown() waits for one.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(darcy, "OFFICIAL_URL", f"http://127.0.0.1:{server.server_port}/file")
    monkeypatch.setattr(darcy, "OFFICIAL_HASH", HASH)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def fetch(tmp_path):
    return lambda **options: darcy.fetch(tmp_path, progress=False, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_download(server, fetch, tmp_path):
    assert fetch() is True
    assert contents(tmp_path) == {darcy.OFFICIAL_NAME: CONTENT}
    assert fetch() is False
    assert fetch(force=True) is False
    assert server.requests == 1


@pytest.mark.usefixtures("server")
def test_wrong_checksum_leaves_nothing(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(darcy, "OFFICIAL_HASH", f"md5:{'0' * 32}")
    with pytest.raises(ValueError, match=f"expected md5 {'0' * 32}, got {HASH[4:]}"):
        fetch()
    assert contents(tmp_path) == {}


def test_cut_connection_leaves_nothing(server, fetch, tmp_path):
    server.sent = 1000
    with pytest.raises((OSError, ValueError), match=r"IncompleteRead|expected md5"):
        fetch()
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("status", [404, 503])
def test_http_error_leaves_nothing(server, fetch, tmp_path, status):
    server.status = status
    with pytest.raises(OSError, match=f"{status} .* Error"):
        fetch()
    assert contents(tmp_path) == {}


def test_no_server(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(darcy, "OFFICIAL_URL", "http://127.0.0.1:9/file")
    with pytest.raises(OSError, match=r"127\.0\.0\.1"):
        fetch()
    assert contents(tmp_path) == {}


def test_other_file_is_replaced_only_with_force_and_only_by_the_right_one(server, fetch, tmp_path):
    mine = {darcy.OFFICIAL_NAME: b"mine"}
    (tmp_path / darcy.OFFICIAL_NAME).write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="output file exists"):
        fetch()
    assert server.requests == 0
    server.status = 404
    with pytest.raises(OSError, match="404"):
        fetch(force=True)
    assert contents(tmp_path) == mine
    server.status = 200
    assert fetch(force=True) is True
    assert contents(tmp_path) == {darcy.OFFICIAL_NAME: CONTENT}


@pytest.mark.usefixtures("server")
def test_interrupt_leaves_nothing(fetch, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(download.pooch, "file_hash", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert contents(tmp_path) == {}


def test_official_checksum_is_pdebenchs():
    assert darcy.OFFICIAL_HASH.startswith("md5:81694ed3")
    assert darcy.OFFICIAL_URL.endswith("/133219")
    assert darcy.default_name(1) == darcy.OFFICIAL_NAME
