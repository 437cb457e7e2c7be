"""A person at the console, in Chromium: gives tasks, watches them end, opens a turn, approves on a phone.

usage: console_browser.py URL FOLDER

It prints `kill` when the server is to be killed and started again, and goes on at the next line of stdin.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
PHONE = {"width": 390, "height": 844}
LIMIT_MS = 60_000


def watch(page, problems):
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))


def picture(page, name):
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


def fits(page):
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{page.url} is {wide} pixels too wide"


def give_task(page, agent, text):
    page.goto(f"{URL}/agents/{agent}")
    page.get_by_label("Task, as text or JSON").fill(text)
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/jobs/*")


def watch_a_job(page):
    give_task(page, "slow", "Please check INV-1004")
    address = page.url
    expect(page.locator("#state")).to_contain_text("complete")
    expect(page.locator("#turns")).to_contain_text("scripted/")
    assert page.url == address, "nobody has loaded the page again"
    picture(page, "job")
    page.locator("#turns a").first.click()
    expect(page.get_by_role("heading", name="What the model saw")).to_be_visible()
    assert page.locator("svg.bar rect").count() >= 2
    expect(page.locator("table.parts")).to_contain_text("denied")
    picture(page, "turn")


def approve_on_a_phone(browser, problems):
    page = browser.new_page(viewport=PHONE)
    watch(page, problems)
    page.set_default_timeout(LIMIT_MS)
    give_task(page, "payer", "go")
    job = page.url
    expect(page.locator("#approvals")).to_contain_text("lattice/append")
    fits(page)
    page.goto(f"{URL}/approvals")
    fits(page)
    box = page.get_by_label("Arguments, which you may change")
    box.fill(box.input_value().replace("100", "7"))
    picture(page, "phone-approval")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status").first).to_contain_text("your answer is taken")
    expect(page.locator("main")).to_contain_text("Nothing else waits for a person")
    assert page.locator("main button").count() == 0, "a second tap must meet nothing"
    page.goto(job)
    expect(page.locator("#state")).to_contain_text("complete")
    for path, name in [("/", "jobs"), ("/agents/payer", "agent"), ("/failures", "failures"), ("/fleet", "fleet")]:
        page.goto(f"{URL}{path}")
        fits(page)
        picture(page, f"phone-{name}")
    page.close()


def find_a_failure(page):
    give_task(page, "broken", "the delta invoice")
    expect(page.locator("#state")).to_contain_text("failed")
    page.goto(URL)
    page.get_by_label("Text").fill("delta")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/?q=delta*")
    expect(page.locator("table.rows tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    expect(page.get_by_role("button", name="Redrive as a new job")).to_be_visible()


def hostile_text(page):
    give_task(page, "hostile", "go")
    expect(page.locator("#state")).to_contain_text("complete")
    expect(page.locator("#values")).to_contain_text("<script>document.title='owned'</script> ⟨U+202E⟩1004")
    assert "owned" not in page.title()


def take_pictures(browser, scheme, problems):
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 800})
    watch(page, problems)
    for path, name in [
        ("/", "jobs"),
        ("/agents", "agents"),
        ("/agents/slow", "agent"),
        ("/failures", "failures"),
        ("/fleet", "fleet"),
        ("/lattice/w", "lattice"),
        ("/sign-in", "sign-in"),
    ]:
        page.goto(f"{URL}{path}")
        fits(page)
        picture(page, f"{scheme}-{name}")
    page.close()


def survive_a_kill(page):
    page.goto(URL)
    expect(page.locator("#live")).to_contain_text("live")
    print("kill", flush=True)
    expect(page.locator("#live")).to_contain_text("Not live")
    sys.stdin.readline()
    expect(page.locator("#live")).to_have_text("● live")


def main():
    problems = []
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        expect.set_options(timeout=LIMIT_MS)
        page = browser.new_page()
        page.set_default_timeout(LIMIT_MS)
        watch(page, problems)
        watch_a_job(page)
        find_a_failure(page)
        hostile_text(page)
        approve_on_a_phone(browser, problems)
        for scheme in ["light", "dark"]:
            take_pictures(browser, scheme, problems)
        assert problems == [], problems
        survive_a_kill(page)
        browser.close()
    print("ok", flush=True)


main()
