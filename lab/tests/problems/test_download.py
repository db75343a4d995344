"""Downloads from a server on this machine: verified, whole or absent."""

import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from chonn_lab.problems import darcy, download, poisson, shallow_water

CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves the first `sent` bytes of `content`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.content, self.sent, self.asked = 200, CONTENT, None, []

    @property
    def checksum(self):
        return hashlib.md5(self.content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.sent])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    server = Server()
    # A short poll: shutdown() waits for one.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(download, "DARUS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(download, "CHECKSUMS", {darcy.OFFICIAL_NAME: server.checksum})
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
    assert server.asked == ["/133219"]


def test_failures_leave_nothing(server, fetch, tmp_path, monkeypatch):
    for status in (404, 503):
        server.status = status
        with pytest.raises(OSError, match=f"{status} .* Error"):
            fetch()
    server.status, server.sent = 200, 1000
    with pytest.raises((OSError, ValueError), match=r"IncompleteRead|expected md5"):
        fetch()
    server.sent = None
    with monkeypatch.context() as patch:
        patch.setattr(download, "CHECKSUMS", {darcy.OFFICIAL_NAME: "0" * 32})
        with pytest.raises(ValueError, match=f"expected md5 {'0' * 32}, got {server.checksum}"):
            fetch()

        def stop(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(download.pooch, "file_hash", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch()
        patch.setattr(download, "DARUS", "http://127.0.0.1:9")
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            fetch()
    assert contents(tmp_path) == {}


def test_other_file_is_replaced_only_with_force_and_only_by_the_right_one(server, fetch, tmp_path):
    mine = {darcy.OFFICIAL_NAME: b"mine"}
    (tmp_path / darcy.OFFICIAL_NAME).write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="output file exists"):
        fetch()
    assert server.asked == []
    server.status = 404
    with pytest.raises(OSError, match="404"):
        fetch(force=True)
    assert contents(tmp_path) == mine
    server.status = 200
    assert fetch(force=True) is True
    assert contents(tmp_path) == {darcy.OFFICIAL_NAME: CONTENT}


def test_pdebenchs_addresses_and_checksums(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(download, "download", lambda *arguments: asked.append(arguments[:2]))
    for problem in (darcy, shallow_water):
        problem.fetch(tmp_path)
    address = "https://darus.uni-stuttgart.de/api/access/datafile"
    assert asked == [
        (f"{address}/133219", "md5:81694ed31306ff2e5f6b76349b0b4389"),
        (f"{address}/133021", "md5:75d838c47aa410694bdc912ea7f22282"),
    ]


@pytest.fixture
def record(server, monkeypatch):
    """Puts members into the archive of a Zenodo record, which `server` has."""

    def load(record):
        assert record.base_url == "doi:10.5281/zenodo.10406879/"
        record.registry["data.zip"] = f"md5:{server.checksum}"

    def local(url, *rest):
        assert url == "https://zenodo.org/records/10406879/files/data.zip?download=1"
        return earlier(f"{download.DARUS}/data.zip", *rest)

    def fill(names):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, name * 5000)
        server.content = buffer.getvalue()

    earlier = download.download
    monkeypatch.setattr(pooch.Pooch, "load_registry_from_doi", load)
    monkeypatch.setattr(download, "download", local)
    return fill


def test_two_files_of_an_archive(tmp_path, server, record):
    inside, outside = map(poisson.file_name, poisson.KINDS)
    record([f"data/{inside}", f"__MACOSX/data/{inside}", f"data/{outside}", "data/other.h5"])
    assert poisson.fetch(tmp_path) is True
    expected = {name: f"data/{name}".encode() * 5000 for name in (inside, outside)}
    assert contents(tmp_path) == expected
    assert poisson.fetch(tmp_path) is False
    assert len(server.asked) == 1
    assert poisson.fetch(tmp_path, force=True) is True


def test_archives_without_a_file_or_damaged(tmp_path, server, record):
    names = [f"data/{poisson.file_name(kind)}" for kind in poisson.KINDS]
    record(names[:1])
    with pytest.raises(ValueError, match=r"expected one .*OUT\.h5 in it, found \[\]"):
        poisson.fetch(tmp_path)
    record(names)
    whole = server.content
    for damaged in (whole[:100] + bytes(50) + whole[150:], whole[:-30]):
        server.content = damaged
        with pytest.raises(ValueError, match="damaged archive"):
            poisson.fetch(tmp_path, force=True)
    assert [path.suffix for path in tmp_path.iterdir()] == [".zip"]
