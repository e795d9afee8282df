"""A served demo and a real browser that opens it, for the browser tests and for the tour.

The browser is the Chromium that is installed on the machine. It can reach only the served demo.
"""

import contextlib
import dataclasses
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from axe_playwright_python.sync_playwright import Axe
from fastapi import FastAPI
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    sync_playwright,
)

from prefermab.service import Settings, create_app
from prefermab.service.auth import accounts
from prefermab.service.work.demo import make_demo
from prefermab.service.work.desk import Desk

USERS = {"Vera": "viewer", "Ana": "field worker", "Paul": "planner", "Ada": "admin"}
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
ARGUMENTS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")


def find_chromium() -> str | None:
    """The path of Chromium; None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Console:
    """Serves an application on a free port of this machine, in a thread."""

    def __init__(self, app: FastAPI):
        self.app, self.ready = app, threading.Event()
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False)
        self.server = uvicorn.Server(config)
        startup = self.server.startup

        async def started(sockets: Any = None) -> None:
            await startup(sockets)
            self.ready.set()

        self.server.startup = started
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)

    def __enter__(self) -> "Console":
        self.thread.start()
        assert self.ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()

    def sign_in(self, name: str, context: BrowserContext) -> None:
        """Gives a browser the session of a user."""
        desk = self.app.state.desk
        with desk.records.writing() as sql:
            secret = desk.sign_ins.begin(sql, name)
        context.add_cookies([{"name": desk.sign_ins.cookie, "value": secret, "url": self.address}])


def add_users(desk: Desk, password: str) -> None:
    """Adds one user of each role; all users have the same password."""
    hashed = accounts.HASHER.hash(password)
    with desk.records.writing() as sql:
        for name, role in USERS.items():
            link = accounts.add_user(sql, name, role, desk.clock())
            accounts.use_link(sql, link, "", hashed, desk.clock())


@contextlib.contextmanager
def demo_console(password: str, people: int = 400) -> Iterator[Console]:
    """Serves the demo with one user of each role; all users have the same password."""
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        place = str(Path(folder) / "demo.db")
        model = make_demo(place, people=people, budget=people // 10)
        app = create_app(Settings(place), model=model)
        add_users(app.state.desk, password)
        with Console(app) as console:
            yield console


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Starts the browser; it is used for all pages."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclasses.dataclass
class Visitor:
    """A user with a browser window; `faults` collects everything that goes wrong in it."""

    console: Console
    context: BrowserContext
    page: Page
    faults: list[str]

    def open(self, path: str) -> Page:
        """Opens a page of the console."""
        self.page.goto(self.console.address + path)
        return self.page

    def look(self) -> None:
        """Raises an error if something went wrong so far, if the page is wider than the window, or
        if it breaks a rule of accessibility."""
        found = Axe().run(self.page).response["violations"]
        for rule in found:
            nodes = "; ".join(node["html"][:160] for node in rule["nodes"][:3])
            self.faults.append(f"{rule['id']}: {rule['help']}: {nodes}")
        wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            self.faults.append(f"{wide} pixels wider than the window")
        assert not self.faults, f"{self.page.url}: {self.faults}"


@contextlib.contextmanager
def visit(
    browser: Browser,
    console: Console,
    name: str | None = None,
    *,
    size: dict[str, int] = DESKTOP,
    dark: bool = False,
    scale: float = 1,
) -> Iterator[Visitor]:
    """Opens a new window; if a name is given, signs that user in."""
    context = browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if dark else "light", device_scale_factor=scale, locale="en-GB",
    )  # fmt: skip
    faults: list[str] = []

    def watch(request: Any) -> None:
        if not request.url.startswith((console.address, "data:", "blob:")):
            faults.append(f"requested {request.url}")

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(message.text)

    context.on("request", watch)
    context.on("console", listen)
    context.on("weberror", lambda error: faults.append(str(error.error)))
    if name is not None:
        console.sign_in(name, context)
    page = context.new_page()
    page.set_default_timeout(20_000)
    yield Visitor(console, context, page, faults)
    context.close()
