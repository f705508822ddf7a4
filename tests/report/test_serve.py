"""`ogspr watch`, asked over the loopback interface as a browser would."""

import contextlib
import http.client
import io
import json
import socket
import struct
import threading

import pytest

from ogspr.analysis.runs import read_run
from ogspr.errors import UserError
from ogspr.records.display import make_console
from ogspr.report import serve as module
from ogspr.report.build import make_report
from ogspr.report.serve import Watcher, make_server, serve
from tests.analysis.folders import write_run


@pytest.fixture
def always_fresh(monkeypatch):
    monkeypatch.setattr(module, "_FRESH_SECONDS", 0.0)


@contextlib.contextmanager
def served(paths, host="127.0.0.1"):
    server = make_server(Watcher(paths, "a title"), host, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def scores(port):
    status, body = ask(port, "/data.json")
    assert status == 200
    return {run["folder"]: run["last"] for run in json.loads(body)["runs"]}


def test_the_page_and_its_document(tmp_path):
    run = write_run(tmp_path / "a", {0: 1.0, 5000: 2.0})
    with served([tmp_path]) as port:
        status, body = ask(port, "/")
        assert status == 200
        assert b"data.json" in body
        assert scores(port) == {str(run): 2.0}


@pytest.mark.usefixtures("always_fresh")
def test_what_a_run_finds_later_is_seen(tmp_path):
    run = write_run(tmp_path / "a", {0: 1.0})
    with served([tmp_path]) as port:
        assert scores(port) == {str(run): 1.0}
        with (run / "eval.csv").open("a") as file:
            file.write("5000,10000,1,7.0,500,truncated,\n5000,10000,2,9.0,500,truncated,\n")
        assert scores(port) == {str(run): 8.0}
        later = write_run(tmp_path / "b", {0: 3.0}, seed=1)
        assert scores(port) == {str(run): 8.0, str(later): 3.0}


@pytest.mark.usefixtures("always_fresh")
def test_runs_that_have_not_changed_are_not_read_again(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(module, "read_run", lambda path: read.append(path.name) or read_run(path))
    write_run(tmp_path / "a", {0: 1.0})
    changing = write_run(tmp_path / "b", {0: 1.0}, seed=1)
    with served([tmp_path]) as port:
        scores(port)
        scores(port)
        assert read == ["a", "b"]
        with (changing / "eval.csv").open("a") as file:
            file.write("\n")
        scores(port)
    assert read == ["a", "b", "b"]


@pytest.mark.usefixtures("always_fresh")
def test_a_folder_without_runs_waits_for_some(tmp_path):
    with served([tmp_path]) as port:
        assert scores(port) == {}
        run = write_run(tmp_path / "a", {0: 1.0})
        assert scores(port) == {str(run): 1.0}


def test_only_videos_of_runs_are_served(tmp_path, monkeypatch):
    monkeypatch.setattr("ogspr.report.compose._LARGEST_VIDEO", 2)
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    videos = write_run(tmp_path / "runs" / "a", {0: 1.0}) / "videos"
    videos.mkdir()
    (videos / "be st.mp4").write_bytes(b"film")
    with served([tmp_path / "runs"]) as port:
        _, body = ask(port, "/data.json")
        (video,) = json.loads(body)["runs"][0]["videos"]
        assert ask(port, f"/{video['source']}") == (200, b"film")
        assert ask(port, f"/{video['source']}", Range="bytes=1-2") == (206, b"il")
        assert ask(port, f"/{video['source']}", Range="bytes=2-") == (206, b"lm")
        for odd in ("bytes=9-", "bytes=-1", "lines=1-2", "bytes=1-2,3-4"):
            assert ask(port, f"/{video['source']}", Range=odd) == (200, b"film"), odd
        for path in (
            "/secret.mp4",
            "/videos/1/x.mp4",
            "/videos/-1/x.mp4",
            f"/videos/{'9' * 5000}/x.mp4",
            "/videos/0x0/x",
            "/../secret.mp4",
            "/videos/../../secret.mp4",
            "/etc/passwd",
            "//etc/passwd",
        ):
            assert ask(port, path)[0] == 404, path


def test_a_page_from_elsewhere_cannot_read_along(tmp_path):
    """A browser that was led to this port by another name sends that name."""
    write_run(tmp_path / "a", {0: 1.0})
    with served([tmp_path]) as port:
        for host in (f"evil.example:{port}", "evil.example", f"localhost.evil.example:{port}", ""):
            assert ask(port, "/data.json", Host=host)[0] == 403, host
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost"):
            assert ask(port, "/data.json", Host=host)[0] == 200, host


def test_what_has_not_changed_is_not_made_or_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_FRESH_SECONDS", 0.0)
    run = write_run(tmp_path / "a", {0: 1.0})
    made = []
    monkeypatch.setattr(module, "make_report", lambda *a, **k: made.append(1) or make_report(*a, **k))
    with served([tmp_path]) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/data.json")
        first = connection.getresponse()
        body, tag = first.read(), first.headers["ETag"]
        assert ask(port, "/data.json") == (200, body)
        assert ask(port, "/data.json", **{"If-None-Match": tag}) == (304, b"")
        assert len(made) == 1
        with (run / "eval.csv").open("a") as file:
            file.write("5000,10000,1,7.0,500,truncated,\n5000,10000,2,9.0,500,truncated,\n")
        assert ask(port, "/data.json", **{"If-None-Match": tag})[0] == 200
        assert len(made) == 2


@pytest.mark.parametrize(("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")])
def test_other_loopback_addresses(tmp_path, host, name):
    write_run(tmp_path / "a", {0: 1.0})
    try:
        served_there = served([tmp_path], host)
        with served_there as port:
            connection = http.client.HTTPConnection(host, port, timeout=30)
            connection.request("GET", "/data.json", headers={"Host": f"{name}:{port}"})
            assert connection.getresponse().status == 200
    except UserError:
        pytest.skip(f"{host} is no address of this machine")


def test_whoever_hangs_up_disturbs_nobody(tmp_path, capfd):
    write_run(tmp_path / "a", {0: 1.0})
    with served([tmp_path]) as port:
        for _ in range(5):
            caller = socket.create_connection(("127.0.0.1", port))
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.sendall(b"GET /data.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
            caller.close()  # at once, with a reset
        assert ask(port, "/data.json")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_other_methods_are_refused(tmp_path):
    with served([tmp_path]) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/", body="x")
        assert connection.getresponse().status == 501


def test_a_port_in_use_and_a_folder_that_is_none_are_told(tmp_path):
    screen = make_console(file=io.StringIO())
    with served([tmp_path]) as port, pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}"):
        serve([tmp_path], host="127.0.0.1", port=port, console=screen)
    with pytest.raises(UserError, match="is not a folder"):
        serve([tmp_path / "nothing"], host="127.0.0.1", port=0, console=screen)
    with pytest.raises(UserError, match="cannot listen on"):
        serve([tmp_path], host="127.0.0.1", port=99_999, console=screen)


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False)])
def test_only_this_machine_unless_told(host, loopback):
    assert module._is_loopback(host) == loopback
