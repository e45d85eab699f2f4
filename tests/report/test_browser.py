"""Reports in a browser: Debian's chromium and chromium-driver; nothing is downloaded."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from greatcircle import report
from report_examples import HOSTILE, example_report, model_page


def new_browser(profile: Path) -> Any:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        missing = "chromium" if not chromium else "chromedriver (Debian: chromium-driver)"
        pytest.skip(f"browser tests need {missing} on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = new_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report.write(example_report(), tmp_path_factory.mktemp("page") / "report.html").as_uri()


def visit(browser: Any, address: str, *, width: int = 1280, scheme: str = "light") -> None:
    """Open the page without stored settings and wait until every chart is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get(address)
    if browser.execute_script("const n = localStorage.length; localStorage.clear(); return n"):
        browser.get(address)
    WebDriverWait(browser, 30).until(
        lambda b: b.execute_script("return document.documentElement.dataset.ready")
    )


def wait(browser: Any, script: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 10).until(lambda b: b.execute_script(f"return {script}"))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


LINES = "document.querySelectorAll('#chart-1 .scatterlayer .trace').length"
INK = "getComputedStyle(document.querySelector('#chart-1 .xtick text')).fill"
HOVER = "document.querySelector('#chart-{} .hoverlayer')?.textContent"
INTO_VIEW = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
THEME = "document.documentElement.dataset.theme"


def test_browser_draws_every_chart_without_errors(browser: Any, address: str) -> None:
    browser.get_log("browser")
    browser.get_log("performance")
    visit(browser, address)
    drawn = "[...document.querySelectorAll('.js-plotly-plot')].map(p => !!p.querySelector('svg'))"
    assert browser.execute_script(f"return {drawn}") == [True, True]
    assert browser.execute_script(f"return {LINES}") == 6
    cells = "document.querySelectorAll('#chart-2 .heatmap-label').length"
    assert browser.execute_script(f"return {cells}") == 75
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = {
        event["params"]["request"]["url"]
        for event in events
        # The start page of Chromium has requests too.
        if event["method"] == "Network.requestWillBeSent"
        and not event["params"]["documentURL"].startswith("chrome:")
    }
    assert {url for url in requested if not url.startswith("data:")} == {address}


def test_browser_has_no_button_that_uploads_data(browser: Any, address: str) -> None:
    visit(browser, address)
    labels = browser.execute_script(
        "return [...document.querySelectorAll('.modebar-btn')].map(b => b.ariaLabel)"
    )
    assert "Download plot" in labels
    assert not any(re.search("share|cloud|edit|plotly", label, re.I) for label in labels)


def test_browser_blocks_injected_scripts_and_requests(browser: Any, address: str) -> None:
    visit(browser, address)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.taken = 1';"
        "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png';"
    )
    assert browser.execute_script("return window.taken") is None
    assert wait(browser, "true")
    complaints = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert "Content Security Policy" in complaints


def test_browser_list_chooses_seeds_by_keyboard(browser: Any, address: str) -> None:
    visit(browser, address)
    browser.execute_script("document.getElementById('chart-1-choice').focus()")
    press(browser, "all")
    wait(browser, f"{LINES} === 9")
    press(browser, "\ue015")  # down: seed 0
    wait(browser, f"{LINES} === 3")
    legend = "[...document.querySelectorAll('#chart-1 .legendtext')].map(t => t.textContent)"
    assert browser.execute_script(f"return {legend}") == [
        "training objective",
        "test objective",
        "angle",
    ]
    press(browser, "\ue011")  # home
    wait(browser, f"{LINES} === 6")


def test_browser_legend_click_hides_a_curve_with_its_band(browser: Any, address: str) -> None:
    visit(browser, address)
    target = browser.find_elements("css selector", "#chart-1 .legendtoggle")[1]
    browser.execute_script(INTO_VIEW, target)
    target.click()
    wait(browser, f"{LINES} === 4")


def test_browser_hover_shows_values(browser: Any, address: str) -> None:
    from selenium.webdriver import ActionChains

    visit(browser, address)
    target = browser.find_element("css selector", "#chart-1 .nsewdrag")
    browser.execute_script(INTO_VIEW, target)
    ActionChains(browser).move_to_element(target).perform()
    text = wait(browser, HOVER.format(1))
    assert re.search(r"training objective : 0\.\d+ ± 0\.\d+", text), text
    assert text.startswith("iteration 20")  # the middle of 40


def test_browser_arrow_keys_read_out_values(browser: Any, address: str) -> None:
    visit(browser, address)
    browser.execute_script("document.getElementById('chart-1').focus()")
    press(browser, "\ue014", "\ue014")
    spoken = wait(browser, "document.getElementById('chart-1-value').textContent")
    assert re.match(r"iteration 1: training objective 0\.\d+; test objective", spoken), spoken
    assert "training objective" in wait(browser, HOVER.format(1))
    browser.execute_script("document.getElementById('chart-2').focus()")
    press(browser, "\ue014", "\ue014", "\ue015")
    spoken = wait(browser, "document.getElementById('chart-2-value').textContent")
    assert spoken.startswith("ours: depth 6, width 20, 0."), spoken
    wait(browser, HOVER.format(2) + ".includes('depth 6, width 20')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_browser_theme_follows_the_system_until_the_user_chooses(
    browser: Any, address: str, scheme: str
) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    visit(browser, address, scheme=scheme)
    assert browser.execute_script(f"return {THEME}") == scheme
    before = browser.execute_script(f"return {INK}")
    press(browser, "\ue004", "\ue004")  # the skip link, then the button
    assert browser.execute_script("return document.activeElement.id") == "theme"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.execute_script(f"return {outline}") == "solid"
    press(browser, " ")
    assert browser.execute_script(f"return {THEME}") == other
    pressed = "document.getElementById('theme').getAttribute('aria-pressed')"
    assert browser.execute_script(f"return {pressed}") == str(other == "dark").lower()
    wait(browser, f"{INK} !== '{before}'")
    browser.refresh()
    wait(browser, "document.documentElement.dataset.ready")
    assert browser.execute_script(f"return {THEME}") == other
    assert browser.execute_script(f"return {INK}") != before


def test_browser_keeps_within_a_phone_and_restores_the_wide_layout(
    browser: Any, address: str
) -> None:
    visit(browser, address, width=360)
    fits = "document.documentElement.scrollWidth <= 360"
    assert browser.execute_script(f"return {fits}")
    tops = (
        "new Set([...document.querySelectorAll('#chart-2 .nsewdrag')]"
        ".map(p => Math.round(p.getBoundingClientRect().top))).size"
    )
    assert browser.execute_script(f"return {tops}") == 3  # one above the other
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    wait(browser, f"{tops} === 1")
    wait(browser, "document.querySelector('#chart-2 .main-svg').clientWidth > 800")


def test_browser_copies_the_command_or_selects_it(browser: Any, address: str) -> None:
    visit(browser, address)
    browser.execute_script("document.getElementById('copy').focus()")
    press(browser, "\ue007")
    wait(browser, "document.getElementById('copied').textContent.startsWith('Command ')")


def test_browser_shows_hostile_text_as_text(browser: Any, tmp_path: Path) -> None:
    figure = go.Figure(go.Scatter(x=[0, 1], y=[1, 2], name=HOSTILE), {"title": {"text": HOSTILE}})
    hostile = example_report(
        title=HOSTILE,
        sections=[report.Section(HOSTILE, charts=[report.Chart(figure, HOSTILE, HOSTILE)])],
    )
    browser.get_log("browser")
    visit(browser, report.write(hostile, tmp_path / "hostile.html").as_uri())
    assert browser.title == " ".join(HOSTILE.split())
    assert browser.find_elements("css selector", "img[src=x]") == []
    assert browser.get_log("browser") == []


def test_browser_prints_on_white(browser: Any, address: str) -> None:
    visit(browser, address, scheme="dark")
    size = (
        "['width', 'height'].map(n => document.querySelector('#chart-1 .main-svg').getAttribute(n))"
    )
    before = browser.execute_script(f"return {size}")
    browser.execute_script(f"addEventListener('beforeprint', () => {{ window.seen = {THEME} }})")
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert browser.execute_script("return window.seen") == "light"
    assert len(pdf) > 10_000
    wait(browser, f"{THEME} === 'dark'")
    wait(browser, f"JSON.stringify({size}) === '{json.dumps(before, separators=(',', ':'))}'")


def test_browser_arrow_keys_read_panel_by_panel(browser: Any, tmp_path: Path) -> None:
    visit(browser, report.write(model_page(), tmp_path / "model.html").as_uri())
    drawn = "[...document.querySelectorAll('.js-plotly-plot')].every(p => p.querySelector('svg'))"
    assert browser.execute_script(f"return {drawn}")
    titles = "[...document.querySelectorAll('#chart-1 .annotation-text')].map(n => n.textContent)"
    assert browser.execute_script(f"return {titles}") == ["fx", "<b>fy", "fz"]
    visit(browser, browser.current_url, width=360)
    assert browser.execute_script("return document.documentElement.scrollWidth <= 360")
    browser.execute_script("document.getElementById('chart-5').focus()")
    for key, words in (("\ue011", "a, x 0: fx"), ("\ue010", "e, x 1: fx")):  # Home, End
        press(browser, key)
        wait(browser, f"document.getElementById('chart-5-value').textContent.startsWith('{words}')")
