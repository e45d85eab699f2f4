"""The HTML of a report: complete, accessible, self-contained, and safe against hostile text."""

import json
from pathlib import Path

import plotly.graph_objects as go
import pytest

from greatcircle import report
from report_examples import HOSTILE, Outline, example_report


@pytest.fixture(scope="module")
def page() -> str:
    return report.render(example_report())


def test_page_is_well_formed_and_complete(page: str) -> None:
    outline = Outline(page)
    assert page.startswith("<!DOCTYPE html>")
    assert outline.of("html")[0][0]["lang"] == "en-GB"
    assert [text for _, text in outline.of("h1")] == ["Experiment & more"]
    assert [text for _, text in outline.of("h2")] == [
        "Learning",
        "Grid",
        "Command",
        "Run details",
    ]
    assert len(outline.of("main")) == len(outline.of("nav")) == 1
    assert outline.of("code")[-2][1] == example_report().command
    assert [attributes["scope"] for attributes, _ in outline.of("th")] == 3 * ["col"] + 2 * ["row"]
    # Numbers are aligned on the right, words on the left.
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
    unseen = [
        text for attributes, text in outline.of("p") if attributes.get("class") == "visually-hidden"
    ]
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


def test_plotly_is_included_once_and_only_with_charts(page: str) -> None:
    scripts = [text for attributes, text in Outline(page).of("script") if "type" not in attributes]
    assert len(scripts) == 2
    assert sum("plotly.js v" in script[:200] for script in scripts) == 1
    bare = report.render(example_report(sections=[report.Section("Only words", "None drawn.")]))
    assert len(bare) < 40_000
    assert len([1 for attributes, _ in Outline(bare).of("script") if "type" not in attributes]) == 1


def test_hostile_text_is_shown_as_text() -> None:
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
    outline = Outline(report.render(example_report(lead=f"see {address} there", sections=[])))
    assert all((attributes["href"] or "#")[0] == "#" for attributes, _ in outline.of("a"))
    assert any(text == f"see {address} there" for _, text in outline.of("p"))


def test_odd_backtick_is_kept() -> None:
    outline = Outline(report.render(example_report(lead="one `a` and ` more", sections=[])))
    assert next(t for a, t in outline.of("p") if a.get("class") == "lead") == "one a and ` more"


def test_same_report_same_bytes(tmp_path: Path) -> None:
    paths = [
        report.write(example_report(), tmp_path / name / "report.html")
        for name in ("first", "second")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_paper_sized_report_stays_below_six_megabytes() -> None:
    big = example_report(40, 3000)
    sections = [*big.sections, *example_report(40, 200).sections, *3 * [big.sections[1]]]
    assert len(report.render(example_report(sections=sections)).encode()) < 6e6


def test_rendering_does_not_change_the_figure(page: str) -> None:
    described = example_report()
    figure = described.sections[0].charts[0].figure
    before = figure.to_json()
    report.render(described)
    assert figure.to_json() == before


def test_ragged_table_is_rejected() -> None:
    with pytest.raises(ValueError, match="row 1 of the table 'T' has 1 cells; expected 2"):
        report.TableBlock(["a", "b"], [["1", "2"], ["1"]], "T")
