"""`ogspr watch`: the page of a report, served while runs are training."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import mimetypes
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

from rich.console import Console

from ogspr.analysis.runs import RunResult, checked_folders, read_run, run_folders
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.report.build import document_json, make_report, page

_FRESH_SECONDS = 2.0  # so long a document is handed out again without a look at the runs
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_NO_HEADERS: Mapping[str, str] = {}


class Watcher:
    """The document of some runs as they are now.

    Runs whose files have not changed are not read again; where no run has anything new, the document is the
    same as before, to the byte.
    """

    def __init__(self, paths: Sequence[Path], title: str) -> None:
        self._paths = tuple(paths)
        self._title = title
        self._read: dict[Path, tuple[object, RunResult]] = {}
        self._videos: list[Path] = []
        self._document = b""
        self._stamps: object = None  # of the runs that are in it
        self._made = -_FRESH_SECONDS
        self._one_at_a_time = threading.Lock()

    def document(self) -> bytes:
        """As JSON."""
        with self._one_at_a_time:
            if time.monotonic() - self._made >= _FRESH_SECONDS:
                self._look()
                self._made = time.monotonic()
            return self._document

    def video(self, address: str) -> Path | None:
        """The file that a document called by this address; None for all other files of this machine."""
        kind, _, rest = address.partition("/")
        number = rest.partition("/")[0]
        numbered = {str(place): path for place, path in enumerate(self._videos)}
        return numbered.get(number) if kind == "videos" else None

    def _look(self) -> None:
        folders = [folder for path in self._paths for folder in run_folders(path)[0]]
        stamps = [(folder, _stamp(folder)) for folder in folders]
        if stamps != self._stamps:
            report = make_report(self._paths, read=self._remembered)
            self._document = document_json(report.document(self._title, self._address)).encode()
            self._stamps = stamps

    def _address(self, path: Path) -> str:
        if path not in self._videos:
            self._videos.append(path)
        return f"videos/{self._videos.index(path)}/{quote(path.name)}"

    def _remembered(self, path: Path) -> RunResult:
        stamp = _stamp(path)
        remembered = self._read.get(path)
        if remembered is None or remembered[0] != stamp:
            remembered = (stamp, read_run(path))
            self._read[path] = remembered
        return remembered[1]


def serve(paths: Sequence[Path], *, host: str, port: int, console: Console) -> None:
    """Serves the page until Ctrl-C."""
    checked_folders(paths)
    title = f"ogspr watch: {', '.join(path.name or str(path) for path in paths)}"
    server = make_server(Watcher(paths, title), host, port)
    address = f"http://{_shown(host)}:{server.server_address[1]}/"
    console.print(f"watching    {', '.join(map(str, paths))}")
    console.print(f"open        {address}   (Ctrl-C stops it)")
    if not _is_loopback(host):
        console.print("warning: anyone who can reach this machine can read these runs", style="yellow")
    with contextlib.closing(server.socket), contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def make_server(watcher: Watcher, host: str, port: int) -> ThreadingHTTPServer:
    """Bound, not yet serving."""

    class Handler(_Handler):
        watched = watcher
        names = (*_LOCAL_NAMES, _shown(host)) if _is_loopback(host) else None

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        return Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port or --host."
        ) from None


class _Handler(BaseHTTPRequestHandler):
    """Reads only; answers three kinds of address."""

    watched: Watcher
    names: tuple[str, ...] | None  # by which this machine may be asked; None: by any

    def do_GET(self) -> None:
        if self.names is not None and self._name_asked_for() not in self.names:
            # A page from elsewhere that gives this machine another name must not read the data.
            self.send_error(HTTPStatus.FORBIDDEN, "served to this machine only")
        elif self.path == "/":
            self._send(page(None, live="data.json").encode(), "text/html; charset=utf-8")
        elif self.path == "/data.json":
            self._send_document()
        elif (video := self.watched.video(self.path.removeprefix("/"))) is not None:
            self._send_file(video)
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "there is nothing here")

    def log_message(self, *_arguments: object) -> None:
        """Nobody wants a line for each look."""

    def _name_asked_for(self) -> str:
        """Without the port."""
        host: str = self.headers.get("Host", "")
        return host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host

    def _send_document(self) -> None:
        try:
            document = self.watched.document()
            tag = f'"{hashlib.sha256(document).hexdigest()}"'
            if self.headers.get("If-None-Match") == tag:  # the browser has it, and need not read it again
                self._send(b"", "application/json", HTTPStatus.NOT_MODIFIED, {"ETag": tag})
            else:
                self._send(document, "application/json", headers={"ETag": tag})
        except UserError as error:
            self._send(json.dumps({"error": str(error)}).encode(), "application/json", HTTPStatus.CONFLICT)

    def _send(
        self,
        data: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        with contextlib.suppress(ConnectionError):  # whoever asked has gone
            self._write(data, kind, status, headers)

    def _write(self, data: bytes, kind: str, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-cache")  # kept, but asked about every time
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND, "the file is gone")
            return
        begin, end = _asked_range(self.headers.get("Range", ""), len(data))
        whole = (begin, end) == (0, len(data))
        # Without parts of a file, a browser cannot jump to the middle of a video.
        headers = {"Accept-Ranges": "bytes"}
        if not whole:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        status = HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT
        self._send(data[begin:end], mimetypes.guess_type(path.name)[0] or "video/mp4", status, headers)


def _asked_range(header: str, size: int) -> tuple[int, int]:
    """First byte and the one after the last, of `bytes=first-last`; everything where it has another form."""
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", header.strip())
    if found is None or int(found[1]) >= size:
        return 0, size
    last = int(found[2]) if found[2] else size - 1
    return int(found[1]), max(int(found[1]), min(last, size - 1)) + 1


def _stamp(path: Path) -> object:
    """Changes when a run has something new."""
    folder = RunFolder(path)
    stamps = []
    tables = (folder.evaluation_table, folder.train_table, folder.system_table)
    for file in (folder.config, folder.manifest, *tables, folder.videos):
        with contextlib.suppress(OSError):
            found = file.stat()
            stamps.append((file.name, found.st_mtime_ns, found.st_size))
    return tuple(stamps)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
