"""The report in a real headless Chromium."""

from pathlib import Path
from typing import Any

import pytest

from posenc.analysis.comparison import compare
from posenc.report import sentences
from posenc.report.page import html
from tests.analysis.synthetic import pair, run, sweep, with_lengths
from tests.report.pages import open_page, overprinted, phone


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Of runs that were also evaluated in longer windows, but for the sinusoid's."""
    rope = [with_lengths(run("rope", seed, pace=2.0, head_at=30), slope=0.1 * (seed + 1)) for seed in range(3)]
    learned = [with_lengths(run("learned", seed, head_at=60), slope=0.0, rows=256) for seed in range(3)]
    others = [run(scheme, seed, head_at=60) for scheme in ("sinusoidal", "<none> & co") for seed in range(3)]
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html(compare(sweep(*rope, *learned, *others))))
    return file


@pytest.fixture
def opened(browser, page) -> Any:
    open_page(browser, page)
    return browser


def click(browser, name: str, value: str | None = None) -> None:
    selector = f"input[name='{name}']" + (f"[value='{value}']" if value else "")
    browser.find_element("css selector", selector).click()


def drawn(browser, what: str = "line", chart: str = "loss-0") -> list[str]:
    """The names of the lines or bands of a chart, in the order they are painted."""
    script = f"return [...document.querySelectorAll('#{chart} .{what}')].map((path) => path.dataset.name)"
    return browser.execute_script(script)


def title(browser, axis: str, chart: str = "loss-0") -> str:
    return browser.find_element("css selector", f"#{chart} .{axis}-title").text


def test_a_headline_comes_first_then_the_sentence_and_the_setup_last(opened):
    headline = opened.find_element("tag name", "h1").text
    assert headline == "rope reaches sinusoidal's lowest loss in 2.01 times fewer steps"
    text = opened.find_element("css selector", "main").text
    order = (headline, "Against sinusoidal's lowest loss", "The comparison", "Setup")
    assert sorted(order, key=text.index) == list(order)


def test_a_headline_has_at_most_15_words_whatever_came_out():
    slow, alike = pair(pace=0.5), pair(pace=1.0)
    two = sweep(
        *(
            run(s, n, pace=p, setting={"m": m})
            for m in "ab"
            for s, p in (("rope", 2.0), ("sinusoidal", 1.0))
            for n in range(3)
        )
    )
    said = {
        "rope is faster than sinusoidal in 2 of 2 settings": two,
        "No scheme is shown to need fewer steps than sinusoidal": slow,
        "No verdict: no scheme shares 3 seeds with sinusoidal": pair(seeds=2),
        "rope ends at a validation loss of 2.005 nats per token": sweep(run("rope", 0, pace=2.0)),
        "rope ends at the lowest validation loss of 2.005 nats per token": sweep(
            run("alibi", 0, pace=1.5), run("rope", 0, pace=2.0)
        ),
    }
    for headline, runs in said.items():
        assert sentences.headline(compare(runs)) == headline
        assert len(headline.split()) <= 15
    assert sentences.headline(compare(alike)).startswith("No scheme")


def test_a_scheme_is_switched_off_and_on_in_every_chart(opened):
    charts = ("loss-0", "speedup-0", "previous_token-0", "lengths-0", "positions-0")
    for chart in charts:
        assert "rope" in drawn(opened, chart=chart)
    click(opened, "scheme", "rope")
    for chart in charts:
        assert "rope" not in drawn(opened, chart=chart)
    click(opened, "scheme", "rope")
    assert "rope" in drawn(opened)


def test_curves_are_drawn_over_steps_tokens_or_seconds_on_linear_or_logarithmic_axes(opened):
    path = "return document.querySelector('#loss-0 .line[data-name=rope]').getAttribute('d')"
    seen = {opened.execute_script(path)}
    for value, said in (("tokens", "tokens"), ("seconds", "training time, s"), ("step", "step")):
        click(opened, "axis", value)
        assert title(opened, "x") == said
    for axis in ("logx", "logy"):
        click(opened, axis)
        seen.add(opened.execute_script(path))
    assert len(seen) == 3
    assert title(opened, "y") == "validation loss, nats per token"


def test_single_seeds_and_thresholds_come_and_go_and_lines_lie_over_bands(opened):
    before = len(drawn(opened))
    click(opened, "seeds")
    assert len(drawn(opened)) == before + 12
    assert "rope, seed 2" in drawn(opened)
    order = opened.execute_script("return [...document.querySelectorAll('#loss-0 g path')].map((p) => p.classList[0])")
    assert order == sorted(order)  # "band", then "line"
    assert len(opened.find_elements("css selector", "#loss-0 .held")) >= 4
    click(opened, "thresholds")
    assert opened.find_elements("css selector", "#loss-0 .held") == []


def test_charts_without_a_curve_are_empty_on_either_kind_of_axis(opened):
    schemes = opened.find_elements("css selector", "input[name=scheme]")
    for scheme in schemes:
        scheme.click()
    for axis in ("logx", "logy"):
        click(opened, axis)
    assert drawn(opened) == []
    assert [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []
    schemes[0].click()
    assert len(drawn(opened)) == 1


def test_a_logarithmic_axis_whose_range_begins_below_0_begins_at_the_lowest_value(opened):
    opened.execute_script("""
        const host = document.getElementById("loss-0");
        const series = [{ name: "one", colour: "red", x: [1, 2, 3], y: [3, 0.1, 0.02] }];
        drawChart(host, { x: { title: "x" }, y: { title: "y", log: true, range: [-0.1, 3] }, series });""")
    path = opened.find_element("css selector", "#loss-0 .line").get_attribute("d")
    assert "NaN" not in path
    assert path.count(",") == 3


def test_single_seeds_alone_have_one_entry_a_scheme_in_the_legend_and_are_read(opened):
    from selenium.webdriver.common.keys import Keys

    click(opened, "seeds")
    click(opened, "mean")
    entries = [one.text for one in opened.find_elements("css selector", "#loss-0 .legend li")]
    assert sorted(entries) == ["<none> & co", "learned", "rope", "sinusoidal"]
    opened.find_element("css selector", "#loss-0 svg[tabindex]").send_keys(Keys.ARROW_RIGHT)
    assert "rope, seed 2" in opened.find_element("css selector", "#loss-0 .values").text


def test_arrow_keys_read_the_values_and_their_intervals(opened):
    from selenium.webdriver.common.keys import Keys

    chart = opened.find_element("css selector", "#loss-0 svg[tabindex]")
    chart.send_keys(Keys.ARROW_RIGHT * 2)
    values = opened.find_element("css selector", "#loss-0 .values").text
    assert values.startswith("step 20: rope 3.3")
    assert values.count(" to ") == 4
    for key, step in ((Keys.END, 300), (Keys.HOME, 10)):
        chart.send_keys(key)
        assert opened.find_element("css selector", "#loss-0 .values").text.startswith(f"step {step}: ")
    labels = [one.get_attribute("aria-label") for one in opened.find_elements("css selector", ".chart svg[tabindex]")]
    assert len(labels) == 5
    assert all(len(label) > 40 for label in labels)


def test_the_values_of_fewer_seeds_than_have_an_interval_are_read_without_one(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    (tmp_path / "report.html").write_text(html(compare(pair(seeds=2))))
    open_page(browser, tmp_path / "report.html")
    browser.find_element("css selector", "#loss-0 svg[tabindex]").send_keys(Keys.ARROW_RIGHT)
    values = browser.find_element("css selector", "#loss-0 .values").text
    assert "rope 3." in values
    assert " to " not in values
    band = browser.find_element("css selector", "#loss-0 .band")
    assert band.get_attribute("d") == ""


def test_a_band_has_a_gap_where_there_is_no_interval(opened):
    opened.execute_script("""
        const host = document.getElementById("loss-0");
        const low = [0.5, 1.5, null, 0.5, 0.5], high = [1.5, 2.5, null, 1.5, 1.5];
        const series = [{ name: "one", colour: "red", x: [1, 2, 3, 4, 5], y: [1, 2, 3, 1, 1], low, high }];
        drawChart(host, { x: { title: "x" }, y: { title: "y" }, series });""")
    band = opened.find_element("css selector", "#loss-0 .band").get_attribute("d")
    assert (band.count("M"), band.count("Z"), band.count("L")) == (2, 2, 6)


def test_a_tap_reads_the_values(opened):
    opened.execute_script("""
        const svg = document.querySelector("#loss-0 svg[tabindex]"), box = svg.getBoundingClientRect();
        const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, pointerType: "touch" };
        svg.dispatchEvent(new PointerEvent("pointerdown", at));""")
    assert "rope" in opened.find_element("css selector", "#loss-0 .values").text


def test_a_score_is_drawn_from_0_to_1_and_not_at_all_where_it_lies_flat_at_0(opened):
    ticks = opened.find_element("id", "previous_token-0").text.split()
    assert {"0", "0.2", "1"} <= set(ticks)
    assert opened.find_elements("id", "induction-0") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(scheme, opened):
    with phone(opened, scheme):
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
        assert overprinted(opened) == []
        paper = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        legend = opened.find_element("css selector", "#loss-0 .legend").rect
        plot = opened.find_element("css selector", "#loss-0 > svg").rect
        assert abs(legend["y"] + legend["height"] - plot["y"]) < 20


def test_it_is_small_and_names_are_shown_as_they_are_and_not_run(page):
    text = page.read_text()
    assert len(text) < 200_000
    assert "<none>" not in text
    assert "&lt;none&gt; &amp; co" in text


def test_longer_windows_are_drawn_and_told_for_the_schemes_that_were_evaluated(opened):
    for chart in ("lengths-0", "positions-0"):
        assert set(drawn(opened, chart=chart)) == {"rope", "learned"}
        assert "rope" in opened.find_element("css selector", f"#{chart} > svg").get_attribute("aria-label")
    assert "8x" in opened.find_element("id", "lengths-0").text
    text = opened.find_element("css selector", "main").text
    assert "a byte costs 0.200 bits more (-0.048 to +0.448, perhaps no change) with rope" in text
    assert "Not evaluated: learned at 1.25x, 1.5x, 2x, 4x, 8x: it supports only 256 positions." in text
    assert "learned was not evaluated (it supports only 256 positions)" in text
    assert "– – – – –" in text  # learned past its table


def test_what_was_not_measured_has_no_section():
    text = html(compare(pair()))
    assert "Beyond the training length" not in text
    assert "<h2>Attention heads</h2>" not in text


def test_only_what_all_runs_have_is_listed_as_shared():
    text = html(compare(sweep(run("rope", 0, setting={"model": "a"}), run("rope", 1, setting={"model": "b"}))))
    shared = text.partition("Configuration shared by all runs")[2].partition("</details>")[0]
    assert ">context</th>" in shared
    assert ">model</th>" not in shared
