"""Chromium without a window, driven over a pipe with the Chrome DevTools Protocol."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_ANSWER_SECONDS = 60.0  # far more than needed: a wait that ends here is a failure
_KEY_CODES = {
    "Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
_KEY_TEXTS = {"Enter": "\r", " ": " "}
_SHIFT = 8


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Connection:
    """Messages to and from the browser, each ended by a NUL byte. Events are kept by page."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, /, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._send(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._write, message) :]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], _ANSWER_SECONDS)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def browser() -> Iterator[Connection]:
    """A Chromium with an empty profile; ended with its children."""
    program = find_chromium()
    assert program is not None
    ours_read, theirs_write = _pipe()
    theirs_read, ours_write = _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = os.posix_spawn(
            program,
            [program, *_arguments(profile)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs_read, 3),
                (os.POSIX_SPAWN_DUP2, theirs_write, 4),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        connection = Connection(ours_read, ours_write)
        try:
            yield connection
        finally:
            with suppress(OSError, RuntimeError):
                connection.call("Browser.close")
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(ours_read)
            os.close(ours_write)


def _pipe() -> tuple[int, int]:
    """Both ends above 9, so that making them 3 and 4 in the child overwrites neither."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


def _arguments(profile: str) -> list[str]:
    return [
        "--headless=new",
        "--no-sandbox",  # which root is refused
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "about:blank",
    ]


class Page:
    """One tab, with everything that went wrong in it."""

    def __init__(self, connection: Connection, width: int = 1280, height: int = 900) -> None:
        self._connection = connection
        self._target = connection.call("Target.createTarget", url="about:blank")["targetId"]
        attached = connection.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._connection.call(method, self._session, **params)

    def open(self, address: str) -> None:
        """Goes there and waits until the page has drawn its first view."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && document.querySelector('main .panel') !== null")
        self.settle()

    def open_text(self, folder: Path, text: str) -> None:
        path = folder / "page.html"
        path.write_text(text, encoding="utf-8")
        self.open(path.as_uri())

    def close(self) -> None:
        self._connection.call("Target.closeTarget", targetId=self._target)

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a condition is true; what it waits for is the test, not how long it takes."""
        end = time.monotonic() + _ANSWER_SECONDS
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never became true: {condition}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Two frames, after which observers have seen the layout."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
        )

    def texts(self, selector: str) -> list[str]:
        """What is shown by elements that are not hidden."""
        found: list[str] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".filter(node => node.checkVisibility()).map(node => node.textContent)"
        )
        return found

    def count(self, selector: str) -> int:
        return int(self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def centre(self, selector: str) -> tuple[float, float]:
        x, y = self.evaluate(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const box = node.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        return x, y

    def hover(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.settle()
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector: str) -> None:
        self.hover(selector)
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str, shift: bool = False) -> None:
        modifiers = _SHIFT if shift else 0
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEY_CODES[key]}
        text = {"text": _KEY_TEXTS[key]} if key in _KEY_TEXTS else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", modifiers=modifiers, **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", modifiers=modifiers, **about)
        self.settle()

    def type(self, selector: str, text: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)
        self.settle()

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def emulate(self, **features: str) -> None:
        """Media features: `prefers_color_scheme="dark"`."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=listed)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    @property
    def errors(self) -> list[str]:
        """Exceptions, errors on the console, and what the content policy has refused."""
        self.evaluate("0")  # what came before it has arrived by now
        return [text for event in self._events() if (text := _error(event))]

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, but for the page itself and what it contains."""
        self.evaluate("0")
        asked = [
            event["params"] for event in self._events() if event["method"] == "Network.requestWillBeSent"
        ]
        addresses = [one["request"]["url"] for one in asked if one.get("type") != "Document"]
        return [address for address in addresses if not address.startswith("data:")]

    def _events(self) -> list[dict[str, Any]]:
        return [event for event in self._connection.events if event.get("sessionId") == self._session]


def _error(event: dict[str, Any]) -> str | None:
    params = event.get("params", {})
    if event["method"] == "Runtime.exceptionThrown":
        return str(params["exceptionDetails"].get("exception", params["exceptionDetails"]))
    if event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        return str(params["args"])
    if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        return str(params["entry"]["text"])
    return None
