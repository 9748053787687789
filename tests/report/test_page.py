"""The report in a real headless Chromium."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from posenc.analysis.comparison import compare
from posenc.report.page import html
from tests.analysis.synthetic import run, sweep, with_lengths

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    runs = [
        run(scheme, seed, pace=pace, head_at=60 / pace)
        for scheme, pace in (("rope", 2.0), ("sinusoidal", 1.0), ("<none> & co", 0.9))
        for seed in range(3)
    ]
    file = tmp_path_factory.mktemp("page") / "report.html"
    made_up = sweep(*runs)
    file.write_text(html(compare(made_up)))
    return file


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    quiet = ("disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "window-size=1200,900", *quiet):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page) -> Any:
    browser.get(page.as_uri())
    return browser


def requests(browser) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def click(browser, name: str, value: str | None = None) -> None:
    selector = f"input[name='{name}']" + (f"[value='{value}']" if value else "")
    browser.find_element("css selector", selector).click()


def traces(browser, chart: str = "loss-0") -> list[dict[str, Any]]:
    script = f"return document.getElementById('{chart}').data.map(t => ({{name: t.name, x: Array.from(t.x)}}))"
    return browser.execute_script(script)


def axis(browser, name: str, key: str, chart: str = "loss-0") -> Any:
    return browser.execute_script(f"return document.getElementById('{chart}').layout.{name}.{key}")


def test_it_opens_from_a_file_without_an_error_and_nothing_leaves(browser, page):
    browser.get_log("performance")
    browser.get(page.as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    asked = [url for url in requests(browser) if not url.startswith("data:")]
    assert asked == [page.as_uri()]
    assert len(browser.find_elements("css selector", ".chart .main-svg")) >= 4


def test_the_verdict_comes_first(opened):
    text = opened.find_element("css selector", "main").text
    assert text.index("rope is faster") < text.index("The comparison") < text.index("What was run")
    assert text.index("What was run") < text.index("What others found")


def test_a_scheme_is_switched_off_and_on_in_every_chart(opened):
    for chart in ("loss-0", "speedup-0", "previous_token-0"):
        assert "rope" in {trace["name"] for trace in traces(opened, chart) if "name" in trace}
    click(opened, "scheme", "rope")
    for chart in ("loss-0", "speedup-0", "previous_token-0"):
        assert "rope" not in {trace.get("name") for trace in traces(opened, chart)}
    click(opened, "scheme", "rope")
    assert "rope" in {trace.get("name") for trace in traces(opened)}


def test_curves_are_drawn_over_steps_tokens_or_seconds(opened):
    for value, last in (("tokens", 300 * 4096), ("seconds", 60), ("step", 300)):
        click(opened, "axis", value)
        assert traces(opened)[-1]["x"][-1] == pytest.approx(last)
    assert axis(opened, "xaxis", "title.text") == "step"


def test_axes_are_linear_or_logarithmic(opened):
    assert (axis(opened, "xaxis", "type"), axis(opened, "yaxis", "type")) == ("linear", "linear")
    click(opened, "logx")
    click(opened, "logy")
    assert (axis(opened, "xaxis", "type"), axis(opened, "yaxis", "type")) == ("log", "log")


def test_single_seeds_and_thresholds_come_and_go(opened):
    before = len(traces(opened))
    click(opened, "seeds")
    assert len(traces(opened)) == before + 9
    assert "rope, seed 2" in {trace.get("name") for trace in traces(opened)}
    assert axis(opened, "shapes", "length") >= 4
    click(opened, "thresholds")
    assert axis(opened, "shapes", "length") == 0


def test_hovering_shows_the_value_and_its_interval(opened):
    template = opened.execute_script("return document.getElementById('loss-0').data.at(-1).hovertemplate")
    text = opened.execute_script("return document.getElementById('loss-0').data.at(-1).text[0]")
    assert "%{y:.3f}" in template
    assert " to " in text


def test_every_figure_has_a_text_alternative(opened):
    labels = [chart.get_attribute("aria-label") for chart in opened.find_elements("css selector", ".chart")]
    assert len(labels) == 4
    assert all(label and len(label) > 40 for label in labels)


def test_it_fits_a_phone(opened):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened.refresh()
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_names_are_shown_as_they_are_and_not_run(page):
    text = page.read_text()
    assert "<none>" not in text
    assert "&lt;none&gt; &amp; co" in text


@pytest.fixture(scope="module")
def longer(tmp_path_factory) -> Path:
    """A page of runs that were also evaluated in longer windows, but for the sinusoid's."""
    rope = [with_lengths(run("rope", seed, pace=2.0), slope=0.1 * (seed + 1)) for seed in range(3)]
    learned = [with_lengths(run("learned", seed), slope=0.0, rows=256) for seed in range(3)]
    made_up = sweep(*rope, *learned, *(run("sinusoidal", seed) for seed in range(3)))
    file = tmp_path_factory.mktemp("longer") / "report.html"
    file.write_text(html(compare(made_up)))
    return file


def test_longer_windows_are_drawn_for_the_schemes_that_were_evaluated(browser, longer):
    browser.get(longer.as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    for chart in ("lengths-0", "positions-0"):
        assert {trace.get("name") for trace in traces(browser, chart)} - {None} == {"rope", "learned"}
        assert axis(browser, "xaxis", "type", chart) == "log"
        label = browser.find_element("id", chart).get_attribute("aria-label")
        assert label is not None
        assert "rope" in label
    ends = {trace.get("name"): trace["x"][-1] for trace in traces(browser, "lengths-0")}
    assert (ends["rope"], ends["learned"]) == (8, 1)
    click(browser, "scheme", "rope")
    assert {trace.get("name") for trace in traces(browser, "positions-0")} - {None} == {"learned"}


def test_longer_windows_are_told_in_a_sentence_and_a_table(browser, longer, page):
    browser.get(longer.as_uri())
    text = browser.find_element("css selector", "main").text
    assert "a byte costs 0.200 bits more (-0.048 to +0.448, perhaps no change) with rope" in text
    assert "No entry for learned at 1.25x, 1.5x, 2x, 4x, 8x: it can place only 256 positions." in text
    assert "learned has no entry (it can place only 256 positions)" in text
    assert "– – – – –" in text  # learned past its table
    assert "Beyond the training length" not in page.read_text()
