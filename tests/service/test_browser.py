"""The console in a real browser: every page, for everybody who may open it.

Left out where Chromium is not installed; see conftest.py.
"""

import pytest

from prefermab.service import Settings
from prefermab.service.auth.access import RULES
from prefermab.service.http.rendering import NAVIGATION
from prefermab.service.several import create_several
from prefermab.service.work.demo import make_demo
from services import PASSWORD, fast_passwords
from tools.browsing import PHONE, USERS, Console, add_users, chromium, demo_console, visit

PAGES = [entry.path for entry in NAVIGATION if entry.route in RULES]


@pytest.fixture(scope="module")
def console():
    fast_passwords()
    with demo_console(PASSWORD, people=60) as console:
        yield console


@pytest.fixture
def own_console():
    """For a test that closes the round, after which there is no list to look at."""
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


def unexpected(faults):
    """Faults other than a connection that is not there, and two people at work on one person."""
    known = ("ERR_INTERNET_DISCONNECTED", "409")
    return [text for text in faults if not any(one in text for one in known)]


def test_a_week_from_the_list_to_its_record_with_a_phone_that_is_offline(browser, own_console):
    with visit(browser, own_console, "Paul") as desk:
        page = desk.open("/week/plan")
        desk.look()
        page.get_by_label("Budget").first.fill("20")
        page.get_by_label("Rounds of rest after an action").fill("0")
        page.get_by_label("Why is the list made again?").fill("more staff this week")
        page.get_by_role("button", name="Make the list").click()
        page.get_by_text("The list is made").wait_for()
        listed = page.get_by_role("table", name="People on the list")
        listed.get_by_role("link", name="Change").first.click()
        desk.look()
        page.get_by_label("Why?").first.fill("has moved <b>away</b>")
        page.get_by_role("button", name="Take off the list").click()
        page.get_by_text("has to be approved again").wait_for()
        page.get_by_text("What to know about this list").click()
        desk.look()
        page.get_by_role("button", name="Approve the list").click()
        page.get_by_text("The list is approved").wait_for()
    with visit(browser, own_console, "Ana", size=PHONE) as phone:
        page = phone.open("/record")
        page.locator("#record[data-kept=yes]").wait_for()
        phone.look()
        people = page.locator("li.person")
        people.nth(0).get_by_label("Done", exact=True).check()
        people.nth(0).get_by_text("Saved.").wait_for()
        phone.context.set_offline(True)
        people.nth(1).get_by_label("Not reached").check()
        people.nth(0).get_by_label("Something else").check()
        people.nth(0).get_by_label("Why?").fill("in <i>hospital</i>")
        people.nth(0).get_by_role("button", name="Save").click()
        page.get_by_text("2 not sent yet: no connection").wait_for()
        page.reload()
        page.get_by_text("2 not sent yet").wait_for()
        assert people.nth(1).get_by_label("Not reached").is_checked()
        ticked = people.nth(1).locator("form").get_attribute("data-person")
        with visit(browser, own_console, "Paul") as desk:
            other = desk.open("/record").locator(f"form[data-person='{ticked}']")
            other.get_by_label("Done", exact=True).check()
            other.get_by_text("Saved.").wait_for()
        phone.context.set_offline(False)
        page.evaluate("window.dispatchEvent(new Event('online'))")
        page.get_by_text("Paul recorded meanwhile: done").wait_for()
        page.get_by_role("button", name="Use mine").click()
        page.get_by_text("Everything is sent.").wait_for()
        assert unexpected(phone.faults) == []
        phone.faults.clear()
        page.reload()
        page.locator("#bar", has_text="Everything is sent.").wait_for()
        assert page.locator("li.person.done").count() == 2
        phone.look()
    with visit(browser, own_console, "Paul") as desk:
        page = desk.open("/record/close")
        desk.look()
        page.get_by_label("Nothing was done").check()
        page.get_by_role("button", name="Record and close").click()
        page.get_by_text("The round is recorded").wait_for()
        page = desk.open(f"/people/person?id={ticked}")
        page.get_by_text("not reached", exact=True).first.wait_for()
        desk.look()


def test_ticks_of_a_phone_that_was_offline_when_the_round_closed(browser, own_console):
    with visit(browser, own_console, "Paul") as desk:
        desk.open("/week").get_by_role("button", name="Approve the list").click()
        desk.page.get_by_text("The list is approved").wait_for()
    with visit(browser, own_console, "Ana", size=PHONE, dark=True) as phone:
        page = phone.open("/record")
        page.locator("#record[data-kept=yes]").wait_for()
        phone.context.set_offline(True)
        first = page.locator("li.person").nth(0)
        ticked = first.locator("form").get_attribute("data-person")
        first.get_by_label("Not reached").check()
        page.get_by_text("1 not sent yet: no connection").wait_for()
        with visit(browser, own_console, "Paul") as desk:
            desk.open("/record/close").get_by_label("All as planned").check()
            desk.page.get_by_role("button", name="Record and close").click()
            desk.page.get_by_text("The round is recorded").wait_for()
        phone.context.set_offline(False)
        page.reload()
        page.locator("#bar", has_text=f"{ticked} not reached, round 5: it came after").wait_for()
        assert unexpected(phone.faults) == []
        phone.faults.clear()
        page.get_by_role("button", name="Understood").click()
        page.locator("#bar").wait_for(state="hidden")
        page.reload()
        page.get_by_text("1 of your ticks came after the round was closed").wait_for()
        phone.look()
    with visit(browser, own_console, "Paul", size=PHONE) as desk:
        page = desk.open("/week")
        desk.look()
        page.get_by_role("link", name="Look and decide").click()
        page.get_by_role("heading", name="Round 5").wait_for()
        desk.look()
        page.get_by_label("Why?").fill("the device was not connected")
        page.get_by_role("button", name="Correct the record").click()
        page.get_by_text("The record is corrected.").wait_for()
        page = desk.open(f"/people/person?id={ticked}")
        page.get_by_text("not reached", exact=True).first.wait_for()


def answering(body, status):
    """Answers every request with this body, as a network that one has to sign in to does."""
    return lambda route: route.fulfill(body=body, status=status)


def test_ticks_in_two_windows_are_all_sent(browser, own_console):
    with visit(browser, own_console, "Paul") as first:
        page = first.open("/week")
        page.get_by_role("button", name="Approve the list").click()
        page.get_by_text("The list is approved").wait_for()
        page = first.open("/record")
        second = first.context.new_page()
        second.goto(own_console.address + "/record")
        second.locator("#record[data-kept=yes]").wait_for()
        held = []
        page.route("**/record/mark", lambda route: held.append(route))
        people = page.locator("li.person")
        people.nth(0).get_by_label("Done", exact=True).check()
        page.get_by_text("1 not sent yet").wait_for()
        second.route("**/record/mark", lambda route: route.abort())
        other = second.locator("li.person")
        other.nth(1).get_by_label("Not reached").check()
        second.get_by_text("not sent yet: no connection").wait_for()
        while not held:
            page.wait_for_timeout(50)
        held.pop().continue_()
        page.unroute("**/record/mark")
        people.nth(0).get_by_text("Saved.").wait_for()
        page.locator("#bar", has_text="Everything is sent.").wait_for()
        page.reload()
        assert people.nth(0).get_by_label("Done", exact=True).is_checked()
        assert people.nth(1).get_by_label("Not reached").is_checked()


def test_a_tick_is_sent_only_if_the_service_says_so(browser, own_console):
    with visit(browser, own_console, "Paul", size=PHONE) as phone:
        page = phone.open("/week")
        page.get_by_role("button", name="Approve the list").click()
        page.get_by_text("The list is approved").wait_for()
        page = phone.open("/record")
        first = page.locator("li.person").nth(0)
        login = "<h1>Sign in to this network</h1>"
        for body, status in (
            (login, 200),
            (login, 403),
            ('{"mark": {"id": "m0', 200),
            ("null", 200),
        ):
            page.route("**/record/mark", answering(body, status))
            first.get_by_label("Done", exact=True).check()
            page.get_by_text("1 not sent yet: the service did not answer").wait_for()
            page.unroute("**/record/mark")
            page.evaluate("window.dispatchEvent(new Event('online'))")
            first.get_by_text("Saved.").wait_for()
            first.get_by_role("button", name="Take back").click()
            first.get_by_text("Taken back.").wait_for()


def test_signing_out_leaves_only_ticks_that_were_not_sent(browser, own_console):
    asked = []
    with visit(browser, own_console, "Paul", size=PHONE) as phone:
        phone.open("/week").get_by_role("button", name="Approve the list").click()
        phone.page.get_by_text("The list is approved").wait_for()
        page = phone.open("/record")
        page.locator("#record[data-kept=yes]").wait_for()

        def tick(place, why):
            person = page.locator("li.person").nth(place)
            person.get_by_label("Something else").check()
            person.get_by_label("Why?").fill(why)
            person.get_by_role("button", name="Save").click()
            return person

        def kept():
            return page.evaluate("async () => JSON.stringify([localStorage, await caches.keys()])")

        tick(0, "is in hospital").get_by_text("Saved.").wait_for()
        page.route("**/record/mark", lambda route: route.abort())
        tick(1, "has moved").get_by_text("not sent yet").wait_for()
        assert "hospital" in kept()

        def stay(dialog):
            asked.append(dialog.message)
            dialog.dismiss()

        page.once("dialog", stay)
        page.get_by_role("button", name="Sign out").click()
        assert page.url.endswith("/record")
        page.once("dialog", lambda one: one.accept())
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/sign-in")
        assert asked[0].startswith("1 of your ticks is not sent. It stays on this device")
        page.wait_for_function("async () => (await caches.keys()).length === 0")
        assert "has moved" in kept()
        assert "hospital" not in kept()
        page.unroute("**/record/mark")
        own_console.sign_in("Paul", phone.context)
        page = phone.open("/record")
        page.locator("#bar", has_text="Everything is sent.").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/sign-in")
        page.wait_for_function("() => !JSON.stringify(localStorage).includes('prefermab')")


def test_two_programmes_side_by_side_also_offline(browser, tmp_path):
    fast_passwords()
    settings = []
    for name in ("calls", "visits"):
        place = str(tmp_path / f"{name}.db")
        model = make_demo(place, people=40, budget=8)
        settings.append(Settings(place, name=name))
    app = create_several(settings, model=model)
    for desk in app.state.desks.values():
        add_users(desk, PASSWORD)
    with Console(app) as console, visit(browser, console, size=PHONE) as visitor:
        page = visitor.open("/")
        visitor.look()
        page.get_by_label("Name").fill("Ada")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Your programmes").wait_for()
        visitor.look()
        page.get_by_role("link", name="visits").click()
        page.wait_for_url("**/p/visits/week")
        visitor.look()
        page.get_by_role("button", name="Approve the list").click()
        page.get_by_text("The list is approved").wait_for()
        page.get_by_role("link", name="Record", exact=True).first.click()
        page.locator("#record[data-kept=yes]").wait_for()
        visitor.context.set_offline(True)
        page.locator("li.person").nth(0).get_by_label("Done", exact=True).check()
        page.get_by_text("1 not sent yet: no connection").wait_for()
        page.reload()
        page.get_by_text("1 not sent yet").wait_for()
        visitor.context.set_offline(False)
        page.evaluate("window.dispatchEvent(new Event('online'))")
        page.get_by_text("Everything is sent.").wait_for()
        assert unexpected(visitor.faults) == []
        visitor.faults.clear()
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Other programmes").click()
        page.get_by_role("link", name="calls").click()
        page.wait_for_url("**/p/calls/week")
        page.get_by_text("not approved yet").first.wait_for()
        visitor.look()


def test_the_slider_works_by_the_keyboard(browser, console):
    with visit(browser, console, "Paul") as visitor:
        page = visitor.open("/what-if")
        slider, shown = page.get_by_role("slider"), page.locator("#of-budget")
        before = float(shown.inner_text())
        slider.focus()
        slider.press("ArrowRight")
        assert float(shown.inner_text()) > before
        slider.press("Home")
        assert (shown.inner_text(), page.locator("#of-chosen").inner_text()) == ("0", "0")
        visitor.look()


def test_a_table_is_previewed_and_imported(browser, console):
    table = "id,state,age\nx1,drifting,30\nx2,dozing,31\nm0001,silent,29\n"
    with visit(browser, console, "Paul", size=PHONE) as visitor:
        page = visitor.open("/import")
        given = {"name": "new.csv", "mimeType": "text/csv", "buffer": table.encode()}
        page.locator("input[type=file]").set_input_files(given)
        page.get_by_role("button", name="Look at it").click()
        page.get_by_role("heading", name="Rows that are wrong").wait_for()
        visitor.look()
        page.get_by_role("button", name="import 1").click()
        page.get_by_text("1 person joined; 2 rows were left out.").wait_for()
        visitor.look()
