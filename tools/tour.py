"""Takes the pictures of docs/tour.md from the demo, in a real browser: `python -m tools.tour`.

With a folder as an argument, it instead writes pictures of every page to this folder: on a desktop,
on a phone and in the dark mode.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page

from prefermab.service.http.rendering import NAVIGATION
from tools.browsing import PHONE, Visitor, chromium, demo_console, visit

PICTURES = Path(__file__).parent.parent / "docs" / "images" / "tour"
PASSWORD = "only for the pictures"
LARGEST = 60_000
"""Largest size of a picture in bytes."""

TABLE = """id,state,age,phone,region,worker
m0501,drifting,24,own,north,Bo
m0502,engagd,31,shared,east,Ana
m0082,silent,29,own,east,Ana
m0503,silent,forty,own,south,Chi
m0504,drifting,22,own,north,Dita
"""
"""A table of people to import; three of its rows are wrong."""


def take_tour(folder: Path) -> list[Path]:
    """Takes all pictures of the tour."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    with demo_console(PASSWORD) as console, chromium() as browser:

        def take(name: str, who: str, path: str, act: Any = None, **window: Any) -> None:
            with visit(browser, console, who, **window) as visitor:
                page = visitor.open(path)
                if act is not None:
                    act(page)
                visitor.look()
                taken.append(shoot(page, folder / f"{name}.png"))

        take("week", "Paul", "/week")
        with visit(browser, console, "Paul") as visitor:
            visitor.open("/week").get_by_role("button", name="Approve the list").click()
            visitor.page.get_by_role("button", name="Approve the list").wait_for(state="detached")
        take("record", "Ana", "/record", size=PHONE)
        take("person", "Paul", "/week", open_person)
        take("what-if", "Paul", "/what-if", move_slider)
        take("groups", "Vera", "/groups")
        take("import", "Paul", "/import", choose_table)
        take("models", "Vera", "/models", replay)
        take("audit", "Vera", "/audit", verify, dark=True)
        take("users", "Ada", "/users")
    return taken


def open_person(page: Page) -> None:
    """Opens the page of the first person in the list."""
    page.locator("main a[href^='/people/']").first.click()
    page.wait_for_url("**/people/**")


def move_slider(page: Page) -> None:
    """Increases the budget with the keyboard."""
    slider = page.get_by_role("slider")
    slider.focus()
    for _ in range(4):
        slider.press("ArrowRight")


def choose_table(page: Page) -> None:
    """Chooses a table with wrong rows."""
    given: Any = {"name": "new.csv", "mimeType": "text/csv", "buffer": TABLE.encode()}
    page.locator("input[type=file]").set_input_files(given)
    page.get_by_role("button", name="Look at it").click()
    page.get_by_role("heading", name="Rows that are wrong").wait_for()


def replay(page: Page) -> None:
    """Makes the list of round 3 again."""
    page.get_by_label("Round").select_option("3")
    page.get_by_role("button", name="Make it again").click()
    page.get_by_text("bit for bit:").wait_for()


def verify(page: Page) -> None:
    """Verifies the audit log."""
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("rows fit").wait_for()


def shoot(page: Page, path: Path, *, full: bool = False) -> Path:
    """Takes a picture of a page and makes its file small."""
    page.screenshot(path=path, full_page=full)
    shrink(path)
    return path


def shrink(path: Path) -> None:
    """Reduces the colours of a picture until its file is small enough."""
    with Image.open(path) as picture:
        plain = picture.convert("RGB")
    for colours in (64, 32, 16, 8):
        plain.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return


def take_all(folder: Path) -> None:
    """Takes pictures of every page of an admin: on a desktop, on a phone and in dark mode."""
    folder.mkdir(parents=True, exist_ok=True)
    windows = {"desk": {}, "phone": {"size": PHONE}, "dark": {"dark": True}}
    with demo_console(PASSWORD) as console, chromium() as browser:
        for kind, window in windows.items():
            with visit(browser, console, "Ada", **window) as visitor:
                take_pages(visitor, folder, kind)


def take_pages(visitor: Visitor, folder: Path, kind: str) -> None:
    """Takes pictures of the pages in the navigation, in one window."""
    visitor.open("/week")
    paths = visitor.page.locator("header nav a").evaluate_all("all => all.map(a => a.pathname)")
    for entry in NAVIGATION:
        if entry.path in paths:
            visitor.open(entry.path)
            visitor.page.screenshot(path=folder / f"{entry.path[1:]}-{kind}.png", full_page=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take_all(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="prefermab-") as scratch:
            for picture in take_tour(Path(scratch)):
                PICTURES.mkdir(parents=True, exist_ok=True)
                (PICTURES / picture.name).write_bytes(picture.read_bytes())
                print(f"{picture.name}: {picture.stat().st_size:,} bytes")
