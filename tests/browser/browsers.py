# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium by the DevTools protocol and a headless Firefox by WebDriver BiDi, with nothing but Python.

    with Chromium() as browser:
        page = browser.open("file:///tmp/page.html", width=1280, height=720)
        page.run("document.title")

Each page collects in `errors` what its console and its scripts complain about.
"""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

PATIENCE_S = 180  # a busy machine takes its time; only a browser that hangs ends by this


class Socket:
    """A WebSocket client (RFC 6455): texts to a server on this machine and back."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
                            "Sec-WebSocket-Version: 13\r\n\r\n".encode())
        status = self.file.readline().decode()
        while self.file.readline().strip():
            pass
        if " 101 " not in status:
            raise OSError(f"the browser refuses a WebSocket: {status}")

    def send(self, text, code=1):
        data, mask = text.encode() if isinstance(text, str) else text, os.urandom(4)
        size = len(data)
        head = struct.pack("!B", 0x80 | code)
        head += (struct.pack("!B", 0x80 | size) if size < 126 else
                 struct.pack("!BH", 0xFE, size) if size < 1 << 16 else struct.pack("!BQ", 0xFF, size))
        masked = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self.socket.sendall(head + mask + masked.to_bytes(size, "big"))

    def read(self, count):
        data = self.file.read(count)
        if len(data) < count:
            raise OSError("the browser closed its connection")
        return data

    def receive(self):
        text = b""
        while True:
            first, second = self.read(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self.read(2 if size == 126 else 8), "big")
            data = self.read(size)
            code = first & 0xF
            if code == 8:
                raise OSError("the browser closed its connection")
            if code == 9:
                self.send(data, 10)
            if code in (0, 1):
                text += data
                if first & 0x80:
                    return json.loads(text)

    def close(self):
        self.file.close()
        self.socket.close()


class Browser:
    """A process in a group and a profile of its own, which ends with the `with`."""

    def __init__(self):
        self.commands, self.pages = 0, {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="yoke-browser-", ignore_cleanup_errors=True)
        self.profile = pathlib.Path(self.folder.name)
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True,
                                        env={**os.environ, "HOME": self.folder.name, "XDG_CONFIG_HOME": self.folder.name,
                                             "XDG_CACHE_HOME": self.folder.name})
        try:
            self.socket = Socket(*self.wait_for_door())
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(AttributeError, OSError):
            self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()

    def wait_for_door(self):
        """The port and the path that the browser writes into a file of its profile."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise OSError(f"{self.program()} ended with {self.process.returncode}")
            with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
                return self.door()
            time.sleep(0.05)
        raise OSError(f"{self.program()} opens no port for its driver")

    def call(self, method, session=None, **arguments):
        self.commands += 1
        self.socket.send(json.dumps({"id": self.commands, "method": method, "params": arguments,
                                     **({"sessionId": session} if session else {})}))
        while (answer := self.socket.receive()).get("id") != self.commands:
            self.hear(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']} {answer.get('message', '')}")
        return answer.get("result", {})

    def open(self, url, width=1280, height=720, dark=False):
        page = self.Page(self)
        page.load(url, width, height, dark)
        return page


class Page:
    """What both browsers' pages have."""

    def __init__(self, browser):
        self.browser, self.errors = browser, []

    def settle(self):
        """Waits for what the page does after an event: two frames."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.picture()))

    def print(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.paper()))


class ChromiumPage(Page):
    def load(self, url, width, height, dark):
        target = self.browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.browser.pages[self.session] = self
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(f"{domain}.enable")
        self.look(width, height, dark)
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.browser.hear(self.browser.socket.receive())
        self.settle()

    def call(self, method, **arguments):
        return self.browser.call(method, self.session, **arguments)

    def hear(self, event):
        kind, values = event["method"], event["params"]
        self.loaded = getattr(self, "loaded", False) or kind == "Page.loadEventFired"
        if kind == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"].get("exception", {}).get("description", str(values)))
        elif kind == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        elif kind == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in values["args"]]))
        elif kind == "Network.requestWillBeSent" and not values["request"]["url"].startswith(("file:", "data:", "about:")):
            self.errors.append(f"asks the network for {values['request']['url']}")

    def look(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def run(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", expression))
        return result["result"].get("value")

    def key(self, name):
        for kind in "keyDown", "keyUp":
            text = {"text": name} if len(name) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **text)
        self.settle()

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def touch(self, x, y):
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def picture(self):
        return self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)["data"]

    def paper(self):
        return self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]

    def close(self):
        self.call("Page.close")


class Chromium(Browser):
    Page = ChromiumPage

    @staticmethod
    def program():
        names = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
        return next(filter(None, map(shutil.which, names)), None)

    def command(self):
        return [self.program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--remote-debugging-port=0", f"--user-data-dir={self.profile}", "about:blank"]

    def door(self):
        port, path = (self.profile / "DevToolsActivePort").read_text().splitlines()[:2]
        return int(port), path

    def begin(self):
        pass

    def hear(self, event):
        if event.get("sessionId") in self.pages:
            self.pages[event["sessionId"]].hear(event)


KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Home": "\ue011",
        "End": "\ue010", "Escape": "\ue00c", "Tab": "\ue004", "PageDown": "\ue00f", "PageUp": "\ue00e"}


class FirefoxPage(Page):
    def load(self, url, width, height, dark):
        self.context = self.browser.call("browsingContext.create", type="tab")["context"]
        self.browser.pages[self.context] = self
        self.look(width, height, dark)
        self.call("browsingContext.navigate", url=url, wait="complete")
        self.settle()

    def call(self, method, **arguments):
        return self.browser.call(method, context=self.context, **arguments)

    def hear(self, event):
        values = event["params"]
        if event["method"] == "log.entryAdded" and values["level"] in ("error", "warn"):
            self.errors.append(str(values.get("text")))

    def look(self, width, height, dark=False):
        """Firefox has no colour scheme of a page: it follows the browser's, which is light."""
        self.call("browsingContext.setViewport", viewport={"width": width, "height": height})

    def run(self, expression):
        result = self.browser.call("script.evaluate", expression=f"Promise.resolve({expression}).then(JSON.stringify)",
                                   target={"context": self.context}, awaitPromise=True)
        if result["type"] == "exception":
            raise RuntimeError(result["exceptionDetails"]["text"])
        return json.loads(result["result"]["value"]) if result["result"]["type"] == "string" else None

    def key(self, name):
        value = KEYS.get(name, name)
        self.act("key", [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}])

    def act(self, kind, actions, **source):
        self.call("input.performActions", actions=[{"type": kind, "id": kind, "actions": actions, **source}])
        self.settle()

    def hover(self, x, y):
        self.act("pointer", [{"type": "pointerMove", "x": int(x), "y": int(y)}])

    def touch(self, x, y):
        self.act("pointer", [{"type": "pointerMove", "x": int(x), "y": int(y)}, {"type": "pointerDown", "button": 0},
                             {"type": "pointerUp", "button": 0}], parameters={"pointerType": "touch"})

    def picture(self):
        return self.call("browsingContext.captureScreenshot")["data"]

    def paper(self):
        return self.call("browsingContext.print", background=True)["data"]

    def close(self):
        self.call("browsingContext.close")


class Firefox(Browser):
    Page = FirefoxPage

    @staticmethod
    def program():
        return shutil.which("firefox-esr") or shutil.which("firefox")

    def command(self):
        (self.profile / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in {
            "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
            "browser.startup.page": 0, "network.captive-portal-service.enabled": False, "ui.systemUsesDarkTheme": 0,
            "network.connectivity-service.enabled": False, "toolkit.telemetry.enabled": False}.items()))
        return [self.program(), "--headless", "--no-remote", "--profile", str(self.profile), "--remote-debugging-port=0", "about:blank"]

    def door(self):
        return int(json.loads((self.profile / "WebDriverBiDiServer.json").read_text())["ws_port"]), "/session"

    def begin(self):
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])

    def hear(self, event):
        source = event.get("params", {}).get("source", {}).get("context")
        if source in self.pages:
            self.pages[source].hear(event)
