"""`ogspr watch`: the page of a report, served while runs go on."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import mimetypes
import re
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

from rich.console import Console

from ogspr.analysis.runs import RunResult, checked_folders, read_run
from ogspr.errors import UserError
from ogspr.records.run import RunFolder
from ogspr.report.build import make_report
from ogspr.report.page import document_json, page

_FRESH_SECONDS = 2.0  # so long a document is handed out again without a look at the runs
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_NO_HEADERS: Mapping[str, str] = {}


class Watcher:
    """The document of some runs as they are now.

    Runs whose files have not changed are not read again: hundreds of finished ones cost nothing.
    """

    def __init__(self, paths: Sequence[Path], title: str) -> None:
        self._paths = tuple(paths)
        self._title = title
        self._read: dict[Path, tuple[object, RunResult]] = {}
        self._videos: list[Path] = []
        self._document = b""
        self._made = -_FRESH_SECONDS
        self._one_at_a_time = threading.Lock()

    def document(self) -> bytes:
        """As JSON."""
        with self._one_at_a_time:
            if time.monotonic() - self._made >= _FRESH_SECONDS:
                report = make_report(self._paths, read=self._remembered)
                self._document = document_json(report.document(self._title, self._address)).encode()
                self._made = time.monotonic()
            return self._document

    def video(self, address: str) -> Path | None:
        """The file that a document called by this address; None for all other files of this machine."""
        kind, _, rest = address.partition("/")
        number = rest.partition("/")[0]
        known = kind == "videos" and number.isdecimal() and int(number) < len(self._videos)
        return self._videos[int(number)] if known else None

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
    console.print(f"watching    {', '.join(map(str, paths))}", markup=False, highlight=False)
    console.print(f"open        {address}   (Ctrl-C ends it)", highlight=False)
    if not _is_loopback(host):
        console.print("warning: everybody who can reach this machine can read these runs", style="yellow")
    with contextlib.closing(server.socket), contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def make_server(watcher: Watcher, host: str, port: int) -> ThreadingHTTPServer:
    """Bound, not yet serving."""

    class Handler(_Handler):
        watched = watcher
        local_only = _is_loopback(host)

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port or --host."
        ) from None


class _Handler(BaseHTTPRequestHandler):
    """Reads only; answers three kinds of address."""

    watched: Watcher
    local_only: bool

    def do_GET(self) -> None:
        if self.local_only and not self._asked_by_this_machine():
            # A page from elsewhere that calls this machine by a name of its own must not read along.
            self.send_error(HTTPStatus.FORBIDDEN, "served for this machine only")
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

    def _asked_by_this_machine(self) -> bool:
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return name in _LOCAL_NAMES

    def _send_document(self) -> None:
        try:
            self._send(self.watched.document(), "application/json")
        except UserError as error:
            self._send(json.dumps({"error": str(error)}).encode(), "application/json", HTTPStatus.CONFLICT)

    def _send(
        self,
        data: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # whoever asked has gone
            self.wfile.write(data)

    def _send_file(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND, "the file is gone")
            return
        begin, end = _asked_range(self.headers.get("Range", ""), len(data))
        whole = (begin, end) == (0, len(data))
        # Without parts of a file, a browser cannot jump to the middle of a film.
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
    for file in (folder.config, folder.manifest, folder.evaluation_table):
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
