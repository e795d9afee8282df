"""The console in a real browser: every page, for everybody who may open it.

Left out where Chromium is not installed; see conftest.py.
"""

import pytest

from prefermab.service.access import RULES
from prefermab.service.rendering import NAVIGATION
from services import PASSWORD, fast_passwords
from tools.browsing import PHONE, USERS, chromium, demo_console, visit

PAGES = [entry.path for entry in NAVIGATION if entry.route in RULES]


@pytest.fixture(scope="module")
def console():
    fast_passwords()
    with demo_console(PASSWORD, people=60) as console:
        yield console


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def test_signing_in_by_hand_leads_to_the_list(browser, console):
    with visit(browser, console) as visitor:
        page = visitor.open("/week")
        visitor.look()
        page.get_by_label("Name").fill("Paul")
        page.get_by_label("Password").fill("something else")
        page.keyboard.press("Enter")
        page.get_by_role("alert").wait_for()
        assert [text for text in visitor.faults if "401" not in text] == []
        visitor.faults.clear()
        visitor.look()
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url("**/week")
        visitor.look()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/sign-in")


@pytest.mark.parametrize("name", USERS)
def test_every_page_is_accessible_at_a_desk_and_on_a_phone_in_the_dark(browser, console, name):
    for settings in ({}, {"size": PHONE, "dark": True}):
        with visit(browser, console, name, **settings) as visitor:
            visitor.open("/week")
            links = visitor.page.locator("header nav a").evaluate_all(
                "all => all.map(one => one.getAttribute('href'))"
            )
            assert set(links) <= set(PAGES)
            for path in links:
                visitor.open(path)
                visitor.look()
