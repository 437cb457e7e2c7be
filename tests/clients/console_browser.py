"""A person at the console, in Chromium: gives tasks, watches them end, opens a turn, approves on a phone.

usage: console_browser.py URL FOLDER AXE

AXE is the file of axe-core, which judges every page in both colour schemes and on a phone.

It prints `kill` when the server is to be killed and started again, and goes on at the next line of stdin.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

URL, FOLDER, AXE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
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
        ("/lattice/w/rule", "value"),
        ("/timers", "timers"),
        ("/secrets", "secrets"),
        ("/policy", "policy"),
        ("/sign-in", "sign-in"),
    ]:
        page.goto(f"{URL}{path}")
        fits(page)
        picture(page, f"{scheme}-{name}")
    page.close()


def open_part(page, name):
    page.locator("summary").filter(has_text=name).click()


def edit_a_value(browser, problems):
    pages = [browser.new_page() for _ in range(2)]
    for page, text in zip(pages, ["Pay on the first day.", "Never pay."]):
        watch(page, problems)
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"{URL}/lattice/w/rule")
        open_part(page, "Edit the value")
        page.locator("#edit textarea").fill(text)
    for page in pages:
        page.get_by_role("button", name="Save over version").click()
        page.wait_for_load_state()
    first, second = pages
    expect(first.locator("pre")).to_have_text("Pay on the first day.")
    expect(second.get_by_role("alert")).to_contain_text("version conflict")
    expect(second.locator("#edit textarea")).to_have_value("Never pay.")
    picture(second, "conflict")
    second.get_by_role("button", name="Save over version").click()
    expect(second.locator("pre")).to_have_text("Never pay.")
    second.get_by_role("link", name="Who saw this").click()
    expect(second.locator("table.rows")).to_contain_text("slow / ")
    picture(second, "seen")
    # A browser reports each answer that is an error: the conflict was one.
    problems[:] = [problem for problem in problems if "409" not in problem]
    for page in pages:
        page.close()


def keep_timers_and_secrets(page):
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/timers")
    expect(page.locator("table.rows tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Cancel the timer").first.click()
    expect(page.locator("table.rows tbody tr")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/secrets")
    page.get_by_label("Name, of letters").fill("SHOP")
    page.locator("input[type=password]").fill("planted-value")
    page.get_by_label("Hosts that it").fill("api.example.com")
    page.get_by_role("button", name="Store").click()
    expect(page.locator("table.rows")).to_contain_text("SHOP")
    assert "planted" not in page.content()


# Pages with each kind of content, besides those of one job and one turn.
JUDGED = [
    "/",
    "/?status=FAILED&q=delta",
    "/agents",
    "/agents/slow",
    "/approvals",
    "/failures",
    "/timers?all=true",
    "/lattice",
    "/lattice/w",
    "/lattice/w/rule",
    "/lattice/w/none",
    "/lattice/w/rule?seen=1",
    "/secrets",
    "/policy",
    "/fleet",
    "/sign-in",
    "/jobs/none",
]


def paths_of_one_job(page):
    page.goto(f"{URL}/agents/slow")
    turn = page.locator("#turns a").first.get_attribute("href")
    page.goto(f"{URL}{turn}")
    job = page.locator("a[href^='/jobs/']").first.get_attribute("href")
    return [job, turn]


def judge(browser, paths):
    """Lets axe-core look at pages with all that opens open; in a context without the policy, which forbids its script."""
    source, faults = AXE.read_text(), []
    for scheme, size in [("light", None), ("dark", None), ("light", PHONE), ("dark", PHONE)]:
        context = browser.new_context(
            bypass_csp=True, color_scheme=scheme, viewport=size or {"width": 1280, "height": 800}
        )
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        for path in paths:
            page.goto(f"{URL}{path}")
            page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
            page.evaluate(source)
            found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
            for fault in found["violations"]:
                if fault["impact"] in ("serious", "critical"):
                    places = [f"{node['target']}: {node['failureSummary']}" for node in fault["nodes"][:3]]
                    faults.append(f"{path} ({scheme}, {size}): {fault['id']}: {places}")
        context.close()
    assert faults == [], "\n".join(faults)


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
        edit_a_value(browser, problems)
        keep_timers_and_secrets(page)
        give_task(page, "payer", "once more")
        expect(page.locator("#approvals")).to_contain_text("lattice/append")
        asking = page.url.removeprefix(URL)
        for scheme in ["light", "dark"]:
            take_pictures(browser, scheme, problems)
        judge(browser, [*JUDGED, asking, *paths_of_one_job(page)])
        assert problems == [], problems
        survive_a_kill(page)
        browser.close()
    print("ok", flush=True)


main()
