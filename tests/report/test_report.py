"""The report page: what is in the file, and what a browser makes of it."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from greatcircle import report
from greatcircle.experiments.run import paper_numbers
from greatcircle.report import model_charts
from greatcircle.report.animation import svg
from greatcircle.report.evaluation import Bounds, Part, Slices

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'`{{ 7*7 }}"
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Elements with their attributes and the text of each; every element must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[int] = []
        self.feed(page)
        self.close()
        assert not self._open, [self.elements[i][0] for i in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open[-1]][0] == tag, (tag, self.getpos())
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.texts[index] += data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
            if name == tag
        ]


def curves(seeds: int, iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    t = np.arange(iterations + 1)
    train = (0.15 + 0.35 * np.exp(-5 * t / iterations)) * rng.lognormal(0, 0.05, (seeds, 1))
    angle = np.exp(-3 - 3 * t[1:] / iterations) * rng.lognormal(0, 0.3, (seeds, iterations))
    return train, 1.1 * train, angle


def experiment(seeds: int = 3, iterations: int = 40, **changes: Any) -> report.Report:
    paper = paper_numbers()["experiment_2"]
    published = np.array(paper["train_rms"])
    ours = published + 0.01 * np.cos(np.arange(published.size)).reshape(published.shape)
    learning = report.Section(
        "Learning",
        "First paragraph, see https://example.org/paper.\n\nSecond, with `code`.",
        tables=[
            report.TableBlock(
                ["method", "train RMS [N]", "outcome"],
                [["Method 1", "0.836 ± 0.005", "converged"], ["Method 2", "–", "no descent"]],
                "As the paper's Table 1.",
            )
        ],
        charts=[
            report.Chart(
                report.learning_curves("Method 1", range(seeds), *curves(seeds, iterations)),
                "Objectives and angle.",
                "Both objectives fall.",
            )
        ],
    )
    grid = report.Section(
        "Grid",
        charts=[
            report.Chart(
                report.heatmaps(
                    paper["depths"], paper["widths"], ours, published, "train RMS", "N"
                ),
                "Train RMS.",
                "Worse with depth.",
            )
        ],
    )
    parts: dict[str, Any] = {
        "title": "Experiment & more",
        "lead": "What came of it.",
        "sections": [learning, grid],
        "command": "greatcircle reproduce exp1 --seeds 40 --out 'runs/exp 1' && echo "
        + 30 * "long ",
        "facts": [("Python", "3.11"), ("Data", "`ground-effect`, " + 90 * "x")],
        "highlights": [report.Highlight("Train RMS", "0.836 N", "paper 0.837 N")],
    }
    return report.Report(**(parts | changes))


@pytest.fixture(scope="module")
def page() -> str:
    return report.render(experiment())


def test_page_is_well_formed_and_complete(page: str) -> None:
    outline = Outline(page)
    assert page.startswith("<!DOCTYPE html>")
    assert outline.of("html")[0][0]["lang"] == "en-GB"
    assert [text for _, text in outline.of("h1")] == ["Experiment & more"]
    assert [text for _, text in outline.of("h2")] == [
        "Learning",
        "Grid",
        "How to repeat",
        "What was run",
    ]
    assert len(outline.of("main")) == len(outline.of("nav")) == 1
    assert outline.of("code")[-2][1] == experiment().command
    assert [attributes["scope"] for attributes, _ in outline.of("th")] == 3 * ["col"] + 2 * ["row"]
    # Figures line up on the right, words on the left.
    assert [attributes.get("class") for attributes, _ in outline.of("td")] == 2 * ["number", None]


def test_references_within_the_page_resolve(page: str) -> None:
    elements = Outline(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for _, attributes in elements:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
        if (attributes.get("href") or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids


def test_charts_and_tables_are_named_for_screen_readers(page: str) -> None:
    outline = Outline(page)
    assert [text for _, text in outline.of("figcaption")] == [
        "Figure 1. Objectives and angle.",
        "Figure 2. Train RMS.",
    ]
    assert [text for _, text in outline.of("caption")] == ["Table 1. As the paper's Table 1."]
    unseen = [text for attributes, text in outline.of("p") if attributes.get("class") == "unseen"]
    assert any(text.startswith("Both objectives fall.") for text in unseen)
    assert outline.of("a")[0][0] == {"class": "skip", "href": "#content"}


def test_nothing_is_loaded_from_outside(page: str) -> None:
    outline = Outline(page)
    for tag, attributes in outline.elements:
        assert "src" not in attributes, tag
        assert "srcset" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        href = attributes.get("href") or ""
        if tag == "link":
            assert href == "data:,"
        elif href and not href.startswith("#"):
            assert (tag, href) == ("a", "https://example.org/paper")
    for _, style in outline.of("style"):
        assert "url(" not in style
        assert "@import" not in style
    assert not outline.of("iframe") + outline.of("object") + outline.of("base")
    policy = next(m["content"] for m, _ in outline.of("meta") if "http-equiv" in m) or ""
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_one_bundle_and_only_with_charts(page: str) -> None:
    scripts = [text for attributes, text in Outline(page).of("script") if "type" not in attributes]
    assert len(scripts) == 2
    assert sum("plotly.js v" in script[:200] for script in scripts) == 1
    bare = report.render(experiment(sections=[report.Section("Only words", "None drawn.")]))
    assert len(bare) < 40_000
    assert len([1 for attributes, _ in Outline(bare).of("script") if "type" not in attributes]) == 1


def test_hostile_text_stays_text() -> None:
    figure = go.Figure(go.Scatter(x=[0, 1], y=[1, 2], name=HOSTILE, text=[HOSTILE, HOSTILE]))
    figure.update_layout(
        title=HOSTILE,
        updatemenus=[
            {"buttons": [{"label": HOSTILE, "method": "update", "args": [{"name": HOSTILE}]}]}
        ],
    )
    page = report.render(
        report.Report(
            title=HOSTILE,
            lead=HOSTILE,
            sections=[
                report.Section(
                    HOSTILE,
                    HOSTILE,
                    [report.TableBlock([HOSTILE], [[HOSTILE]], HOSTILE)],
                    [report.Chart(figure, HOSTILE, HOSTILE)],
                )
            ],
            command=HOSTILE,
            facts=[(HOSTILE, HOSTILE)],
            highlights=[report.Highlight(HOSTILE, HOSTILE, HOSTILE)],
        )
    )
    outline = Outline(page)
    assert outline.of("title")[0][1] == outline.of("h1")[0][1] == HOSTILE
    assert outline.of("option")[0][1] == HOSTILE
    assert not outline.of("img")
    assert len(outline.of("script")) == 3
    data = next(t for a, t in outline.of("script") if a.get("type") == "application/json")
    described = json.loads(data)
    assert described["data"][0]["name"] == described["layout"]["title"]["text"] == HOSTILE
    assert described["choices"] == [[{"name": HOSTILE}]]


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,<b>", "file:///etc"])
def test_only_web_addresses_become_links(address: str) -> None:
    outline = Outline(report.render(experiment(lead=f"see {address} there", sections=[])))
    assert all((attributes["href"] or "#")[0] == "#" for attributes, _ in outline.of("a"))
    assert any(text == f"see {address} there" for _, text in outline.of("p"))


def test_odd_backtick_is_kept() -> None:
    outline = Outline(report.render(experiment(lead="one `a` and ` more", sections=[])))
    assert next(t for a, t in outline.of("p") if a.get("class") == "lead") == "one a and ` more"


def test_same_report_same_bytes(tmp_path: Path) -> None:
    paths = [
        report.write(experiment(), tmp_path / name / "report.html") for name in ("first", "second")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_paper_sized_report_stays_below_six_megabytes() -> None:
    big = experiment(40, 3000)
    sections = [*big.sections, *experiment(40, 200).sections, *3 * [big.sections[1]]]
    assert len(report.render(experiment(sections=sections)).encode()) < 6e6


def test_rendering_leaves_the_figure_alone(page: str) -> None:
    described = experiment()
    figure = described.sections[0].charts[0].figure
    before = figure.to_json()
    report.render(described)
    assert figure.to_json() == before


def test_ragged_table_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 of the table 'T' has 1 cells for 2 headings"):
        report.TableBlock(["a", "b"], [["1", "2"], ["1"]], "T")


def shown(figure: Any, choice: int) -> list[Any]:
    button = figure.layout.updatemenus[0].buttons[choice]
    return [t for t, seen in zip(figure.data, button.args[0]["visible"], strict=True) if seen]


def test_learning_curves_show_means_bands_and_seeds() -> None:
    train, test, angle = curves(4, 50)
    figure: Any = report.learning_curves("M", [3, 5, 8, 9], train, test, angle)
    means = [t for t in shown(figure, 0) if t.fill is None]
    for trace, rows in zip(means, (train, test, angle), strict=True):
        np.testing.assert_allclose(trace.y, rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(trace.customdata, rows.std(axis=0), rtol=1e-5)
    assert len(shown(figure, 0)) == 6
    assert len(shown(figure, 1)) == 12
    assert figure.layout.updatemenus[0].buttons[3].label == "seed 5"
    for trace, rows in zip(shown(figure, 3), (train, test, angle), strict=True):
        np.testing.assert_allclose(trace.y, rows[1], rtol=1e-6)
    # The first view is what the figure shows before anyone chooses.
    assert shown(figure, 0) == [t for t in figure.data if t.visible is not False]
    assert figure.layout.yaxis.type == figure.layout.yaxis2.type == "log"
    assert min(min(t.y) for t in figure.data) > 0


def test_one_seed_has_no_band_and_no_menu() -> None:
    figure: Any = report.learning_curves("M", [7], *curves(1, 50))
    assert len(figure.data) == 3
    assert not figure.layout.updatemenus
    assert all(trace.visible for trace in figure.data)


def test_runs_that_ended_early_leave_the_mean_to_the_others() -> None:
    train, test, angle = curves(3, 50)
    for rows in (train, test, angle):
        rows[1, 20:] = np.nan
        rows[:, 45:] = np.nan
    mean = shown(report.learning_curves("M", range(3), train, test, angle), 0)[1]
    assert len(mean.x) == 45
    np.testing.assert_allclose(mean.y[30], train[[0, 2], 30].mean(), rtol=1e-6)


def test_long_runs_are_thinned_and_the_menu_says_so() -> None:
    figure: Any = report.learning_curves("M", range(3), *curves(3, 3000))
    seed, _, angle = shown(figure, 2)
    assert len(seed.x) <= 302
    assert (seed.x[0], seed.x[-1]) == (0, 3000)
    assert list(angle.x) == list(seed.x[1:])  # so that one place shows all three
    assert figure.layout.updatemenus[0].buttons[2].label == "seed 0 (every 10th iteration)"


def test_learning_curves_refuse_wrong_shapes() -> None:
    train, test, angle = curves(3, 50)
    with pytest.raises(ValueError, match="one row for each seed"):
        report.learning_curves("M", range(2), train, test, angle)
    with pytest.raises(ValueError, match=r"expected \(3, 50\)"):
        report.learning_curves("M", range(3), train, test, train)


def test_heatmaps_share_one_scale_and_centre_the_difference() -> None:
    ours, paper = np.array([[0.9, 0.5], [np.nan, 0.7]]), np.array([[0.8, 0.6], [0.4, 0.7]])
    figure: Any = report.heatmaps([4, 6], [15, 20], ours, paper, "RMS", "N")
    assert [trace.name for trace in figure.data] == ["ours", "paper", "ours − paper"]
    assert [trace.coloraxis for trace in figure.data] == ["coloraxis", "coloraxis", "coloraxis2"]
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.4, 0.9)
    assert figure.layout.coloraxis2.cmin == -figure.layout.coloraxis2.cmax
    written = [list(row) for row in figure.data[2].text]
    assert written == [["+0.100", "−0.100"], ["", "0.000"]]


def test_heatmaps_colour_by_logarithm_but_write_the_values() -> None:
    ours, paper = np.array([[1.0, 2.0]]), np.array([[100.0, 400.0]])
    figure: Any = report.heatmaps([4], [15, 20], ours, paper, "time", "s", log=True)
    np.testing.assert_allclose(figure.data[1].z, np.log10(paper))
    assert list(figure.data[1].text[0]) == ["100.0", "400.0"]
    with pytest.raises(ValueError, match="no logarithm"):
        report.heatmaps([4], [15, 20], 0 * ours, paper, "time", "s", log=True)


def test_heatmaps_without_any_result_yet_are_drawn() -> None:
    empty = np.full((1, 2), np.nan)
    figure: Any = report.heatmaps([4], [15, 20], empty, empty, "time", "s", log=True)
    assert len(figure.data) == 3
    with pytest.raises(ValueError, match=r"expected \(1, 2\) for both"):
        report.heatmaps([4], [15, 20], empty, empty.T, "time", "s")


# From here on in a browser: Debian's chromium and chromium-driver, nothing downloaded.


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
    return report.write(experiment(), tmp_path_factory.mktemp("page") / "report.html").as_uri()


def visit(browser: Any, address: str, *, width: int = 1280, scheme: str = "light") -> None:
    """Open afresh, with nothing remembered; wait until every chart is drawn."""
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


def test_browser_draws_every_chart_without_complaint(browser: Any, address: str) -> None:
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
        # Chromium's own start page loads parts of itself.
        if event["method"] == "Network.requestWillBeSent"
        and not event["params"]["documentURL"].startswith("chrome:")
    }
    assert {url for url in requested if not url.startswith("data:")} == {address}


def test_browser_offers_no_way_to_send_the_data_off(browser: Any, address: str) -> None:
    visit(browser, address)
    labels = browser.execute_script(
        "return [...document.querySelectorAll('.modebar-btn')].map(b => b.ariaLabel)"
    )
    assert "Download plot" in labels
    assert not any(re.search("share|cloud|edit|plotly", label, re.I) for label in labels)


def test_browser_blocks_scripts_and_loads_that_text_might_smuggle_in(
    browser: Any, address: str
) -> None:
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
    press(browser, "every")
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
def test_browser_follows_the_system_until_told_otherwise(
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


def test_browser_leaves_hostile_text_harmless(browser: Any, tmp_path: Path) -> None:
    figure = go.Figure(go.Scatter(x=[0, 1], y=[1, 2], name=HOSTILE), {"title": {"text": HOSTILE}})
    hostile = experiment(
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


def model_page() -> report.Report:
    """Charts with panels, as of a fitted model, with names that are no HTML."""
    rng = np.random.default_rng(0)
    parts = {
        name: Part(np.arange(30), rng.standard_normal((30, 3)), rng.standard_normal((30, 3)))
        for name in ("train", "test")
    }
    targets = ["fx", "<b>fy", "fz"]
    grid = np.linspace(np.zeros(5), np.ones(5), 7).T
    cut = Slices(tuple("abcde"), ("fx", "fy"), grid, rng.standard_normal((5, 7, 2)))
    figures = {
        "predicted": model_charts.predicted(parts, targets),
        "histograms": model_charts.histograms(parts, targets),
        "residuals": model_charts.residuals(parts, targets),
        "bars": model_charts.bars(
            model_charts.bound_bars(Bounds(800.0, 80.0, 20.0, 12.0, None, "unit of the inputs")),
            "unit of the inputs",
        ),
        "slices": model_charts.slices(cut),
        "confusion": model_charts.confusion(["a", "b"], np.array([[8, 1], [0, 5]])),
    }
    charts = [report.Chart(figure, name, name) for name, figure in figures.items()]
    return experiment(sections=[report.Section("Model", charts=charts)])


def test_histogram_shares_have_common_bins_and_count_nearly_all_rows() -> None:
    rng = np.random.default_rng(0)
    parts = {
        name: Part(np.arange(count), rng.standard_normal((count, 1)), np.zeros((count, 1)))
        for name, count in (("train", 900), ("test", 100))
    }
    shares = model_charts.residual_shares(parts, 0)
    np.testing.assert_array_equal(shares["train"][0], shares["test"][0])
    for centres, share in shares.values():
        assert 0.95 < share.sum() <= 1
        assert share[0] == share[-1] == 0
        assert np.all(np.diff(centres) > 0)
    # Residuals that are all alike still have bins.
    alike = {name: part._replace(measured=part.predicted) for name, part in parts.items()}
    assert model_charts.residual_shares(alike, 0)["test"][1].max() == 1


def test_menus_of_panels_show_one_view_at_a_time() -> None:
    charts = model_page().sections[0].charts
    for chart in (charts[2], charts[4]):
        buttons = chart.figure.layout.updatemenus[0].buttons
        visible = np.array([button.args[0]["visible"] for button in buttons])
        assert np.all(visible.sum(axis=0) == 1)
        assert [t.visible for t in chart.figure.data] == visible[0].tolist()


def test_browser_reads_panels_one_after_the_other(browser: Any, tmp_path: Path) -> None:
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


def moving(name: str = "baseline") -> report.Animation:
    time = np.linspace(0, 2, 30)
    track = report.Track(name, "#0072B2", time, time - 2, 1.2 - 0.54 * time, 0.1 * np.sin(time))
    plan = [(-2.0, 1.2), (0.0, 0.12)]
    return report.Animation([track, track], plan, 0.12, "A landing.", "It lands at 0 m.")


def test_animation_stands_still_until_asked_and_needs_no_script() -> None:
    section = report.Section("Flight", animations=[moving(), moving("<b>other</b>")])
    page = report.render(report.Report("Landing", "", [section]))
    Outline(page)
    assert "&lt;b&gt;other&lt;/b&gt;" in page
    assert "<b>other" not in page
    assert page.count("@keyframes flight-1-") == page.count("@keyframes flight-2-") == 2
    assert '<input type="checkbox" class="play" id="animation-1-play">' in page
    assert "checked>" not in page
    assert ".flyer { animation-play-state: paused; }" in page
    assert "It lands at 0 m." in page
    assert len(re.findall(r"<script", page)) == 1  # that of every page; no bundle


def test_animation_ends_where_the_track_ends() -> None:
    last = re.findall(
        r"100%\{transform:translate\(([-\d.]+)px,([-\d.]+)px\)", str(svg(moving(), 1))
    )
    pad = re.search(r'class="pad" d="M([-\d.]+),([-\d.]+) h([-\d.]+)"', str(svg(moving(), 1)))
    assert pad
    left, floor, width = map(float, pad.groups())
    x, y = map(float, last[0])
    assert abs(x - (left + width / 2)) < 0.2
    assert y < floor  # it stands on its legs
