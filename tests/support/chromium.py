"""A headless Chromium, driven by the WebDriver protocol of its own chromedriver.

Debian: `apt-get install chromium chromium-driver`. A test that has no browser is skipped, and says
so. Every call waits for the page to have loaded.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.support.ports import free_port
from tests.support.waiting import WAIT_S, wait_until

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def needs_chromium() -> None:
    """Skips the test if there is no browser."""
    if not (shutil.which("chromedriver") and shutil.which("chromium")):
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")


class Chromium:
    """A browser with one window. `log`: what its console has said."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-")
        port = free_port()
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._url = f"http://127.0.0.1:{port}"
        wait_until(self._answers, "chromedriver", timeout_s=WAIT_S)
        arguments = [
            "--headless=new",
            # Tests run as root in containers, where Chromium's own sandbox cannot be set up.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={self._folder.name}",
        ]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        asked = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._url += f"/session/{session['sessionId']}"

    def _answers(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except (URLError, ConnectionError):
            return False

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"})
        request.method = method
        with urlopen(request, timeout=WAIT_S) as answer:
            return json.loads(answer.read())["value"]

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(WAIT_S)
            self._folder.cleanup()

    # -- pages -----------------------------------------------------------------------------

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Sends a command of Chromium's own protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, *, width: int, height: int = 900, is_dark: bool = False) -> None:
        """Sets the size of the window, and the preferred colours."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Runs the body of a function, and returns its result."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def has(self, selector: str) -> bool:
        return bool(self.run("return document.querySelector(arguments[0]) !== null", selector))

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        element = self._element(selector)
        self._call("POST", f"/element/{element}/clear", {})
        self._call("POST", f"/element/{element}/value", {"text": text})

    def press(self, key: str) -> None:
        """Presses a key, such as "\\ue004", which is Tab."""
        steps = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keyboard = {"type": "key", "id": "keyboard", "actions": steps}
        self._call("POST", "/actions", {"actions": [keyboard]})

    def _element(self, selector: str) -> str:
        asked = {"using": "css selector", "value": selector}
        return str(self._call("POST", "/element", asked)[_ELEMENT])

    def errors(self) -> list[str]:
        """Returns what the console has said since the last call: each is an error or a warning."""
        return [each["message"] for each in self._call("POST", "/se/log", {"type": "browser"})]

    def picture(self, path: Path, *, height_max: int = 4000) -> None:
        """Writes a picture of the whole page."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "scale": 1}
        clip["height"] = min(size["height"], height_max)
        found = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))
