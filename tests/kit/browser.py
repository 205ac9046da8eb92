"""A headless Chromium that tells what a page did: dialogs, requests, frames, words on its console.

It is driven through two pipes (--remote-debugging-pipe): each message is JSON and ends with a zero
byte. https://chromedevtools.github.io/devtools-protocol names the methods and events.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
DOMAINS = ("Page", "Network", "Runtime", "Log")
# Everything that a reader of a page might do to it: open what is folded, and click everywhere.
TOUCH = """
document.querySelectorAll("details").forEach(each => each.open = true);
document.querySelectorAll("a, button, summary, td, code").forEach(each => each.click()); 0"""


class Browser:
    def __init__(self, command: int, answers: int):
        self.command, self.answers = command, answers
        self.number, self.rest = 0, b""
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> int:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.command, json.dumps(message).encode() + b"\0")
        return self.number

    def messages(self, until: float) -> Iterator[dict[str, Any]]:
        """What arrives before the clock says `until`. A dialog is closed, or the page would wait."""
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.answers], [], [], left)[0]:
                return
            *whole, self.rest = (self.rest + os.read(self.answers, 1 << 20)).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                    if message["method"] == "Page.javascriptDialogOpening":
                        self.send("Page.handleJavaScriptDialog", accept=True)
                yield message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.send(method, **params)
        for message in self.messages(time.monotonic() + 60):
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
        raise TimeoutError(method)

    def open(self, url: str, width: int = 1280) -> None:
        """Load a page in a new tab and let it do what it does."""
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in DOMAINS:
            self.ask(f"{domain}.enable")
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events = []
        self.ask("Page.navigate", url=url)
        for _ in self.messages(time.monotonic() + 60):
            if any(event["method"] == "Page.loadEventFired" for event in self.events):
                break
        self.settle()

    def settle(self) -> None:
        for _ in self.messages(time.monotonic() + 0.5):
            pass

    def evaluate(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"][
            "value"
        ]

    def did(self, url: str) -> list[str]:
        """All that the page did besides showing itself: none of it is what a report may do. A
        request that the page's own policy stopped is only on the console."""
        found = []
        stopped = {
            event["params"]["requestId"]
            for event in self.events
            if event["method"] == "Network.loadingFailed"
            and event["params"].get("blockedReason") == "csp"
        }
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Network.requestWillBeSent":
                asked = params["request"]["url"]
                ours = asked == url or asked.startswith("data:")
                if not ours and params["requestId"] not in stopped:
                    found.append(f"request {asked}")
            elif method in (
                "Page.javascriptDialogOpening",
                "Page.windowOpen",
                "Page.frameAttached",
            ):
                found.append(f"{method} {params.get('message', '')}")
            elif method == "Log.entryAdded":
                found.append(f"log {params['entry']['text']}")
            elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(f"{method} {str(params)[:200]}")
        return found


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A fresh Chromium with a profile in `folder`, which ends with the block."""
    assert BROWSER is not None
    pipes = [*os.pipe(), *os.pipe()]
    # Numbers from 10 on, so that none of them is one of the two that Chromium wants.
    high = [fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 10) for pipe in pipes]
    for pipe in pipes:
        os.close(pipe)
    their_read, our_write, our_read, their_write = high
    process = os.posix_spawn(
        BROWSER,
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        {**os.environ, "HOME": str(folder)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, their_read, 3),
            (os.POSIX_SPAWN_DUP2, their_write, 4),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0o600),
        ],
        setpgroup=0,
    )
    os.close(their_read)
    os.close(their_write)
    try:
        yield Browser(our_write, our_read)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(our_write)
        os.close(our_read)
