"""Pages as a browser shows them: headless Chromium, driven by its DevTools protocol over pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60.0
# Chromium reads commands from descriptor 3 and writes answers to 4.
_START = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
    "for end, number in zip(ends, (3, 4)): os.dup2(end, number)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)
# What reaches beyond the right edge, except inside of a box that scrolls by itself or that is fixed
# beside the screen until a button calls it; and pictures without pixels.
_LOOK = """
((screen) => {
  const wide = [], broken = [];
  const apart = (e) => {
    if (!e || e === document.body || e === document.documentElement) return false;
    const style = getComputedStyle(e);
    return style.overflowX !== "visible" || style.position === "fixed" || apart(e.parentElement);
  };
  for (const e of document.body.querySelectorAll("*")) {
    if (apart(e.parentElement) || getComputedStyle(e).position === "fixed") continue;
    const box = e.getBoundingClientRect(), inner = apart(e) ? 0 : box.left + e.scrollWidth;
    const right = Math.round(Math.max(box.right, inner));
    if (box.width && right > screen + 1)
      wide.push(`${e.tagName.toLowerCase()} to ${right}: ${e.textContent.trim().slice(0, 60)}`);
  }
  for (const image of document.images)
    if (!(image.complete && image.naturalWidth))
      broken.push((image.getAttribute("src") || "").slice(0, 100));
  return JSON.stringify({wide, broken, width: document.documentElement.scrollWidth});
})
"""


def program() -> str | None:
    """Chromium's path, None where it is not installed or cannot be given descriptors."""
    found = filter(None, map(shutil.which, PROGRAMS))
    return next(found, None) if os.name == "posix" else None


@dataclass(frozen=True)
class Look:
    """What a page looks like at some width."""

    width: int  # of the whole page, in pixels
    errors: list[str]  # console errors, uncaught exceptions, failed requests
    broken: list[str]  # addresses of pictures that are not shown
    wide: list[str]  # elements beyond the screen's right edge


class Browser:
    """A running Chromium."""

    def __init__(self, path: str, profile: Path) -> None:
        from_us, to_us = os.pipe(), os.pipe()
        options = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update"),
            f"--user-data-dir={profile}",
        )
        ends = (from_us[0], to_us[1])
        with (profile / "log.txt").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, ends), path, *options, "about:blank"],
                pass_fds=ends,
                stdout=log,
                stderr=log,
            )
        for end in ends:
            os.close(end)
        self._out, self._in = os.fdopen(from_us[1], "wb", 0), os.fdopen(to_us[0], "rb", 0)
        self._rest, self._number, self._events, self._session = b"", 0, [], None
        os.set_blocking(to_us[0], False)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            read = self._in.read(1 << 20)
            if read == b"":
                raise RuntimeError("Chromium has ended")
            if read is None:
                if time.monotonic() > end:
                    raise TimeoutError(f"Chromium is silent for {SECONDS:g} s")
                time.sleep(0.005)
                continue
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def look(self, page: Path, width: int) -> Look:
        """Load a page on a screen of this width, and wait until all of it is there."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._events.clear()
        address = page.resolve().as_uri()
        self._call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())
        found = self._call("Runtime.evaluate", expression=f"({_LOOK})({width})")["result"]
        seen = json.loads(found["value"])
        return Look(
            seen["width"],
            [text for event in self._events if (text := _complaint(event))],
            seen["broken"],
            seen["wide"],
        )

    def close(self) -> None:
        """End Chromium."""
        self._out.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._in.close()


def _complaint(event: dict[str, Any]) -> str:
    """What an event says of an error, "" if it is none."""
    method, given = event["method"], event["params"]
    if method == "Runtime.exceptionThrown":
        details = given["exceptionDetails"]
        return str(details.get("exception", {}).get("description", details["text"]))
    if method == "Runtime.consoleAPICalled" and given["type"] in ("error", "assert"):
        return " ".join(str(one.get("value", one)) for one in given["args"])
    if method == "Log.entryAdded" and given["entry"]["level"] == "error":
        return f"{given['entry']['text']} {given['entry'].get('url', '')}".strip()
    if method == "Network.loadingFailed":
        return f"{given['type']}: {given['errorText']}"
    return ""
