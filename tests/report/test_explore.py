"""The explorable page: its mathematics beside our classes, and what it names, in a real headless Chromium."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from posenc.commands.explore import main
from posenc.config.files import CONF
from posenc.errors import UserError
from posenc.positions import T5, Alibi, Kerple, Rotary, Sinusoidal, Truncated
from posenc.report.explore import html
from tests.conftest import ROOT, fresh_python
from tests.report.pages import open_page, overprinted, phone

DISTANCES = (0, 1, 7, 100, 255)


AS_A_REPORT = "setting,scheme,seed,step,tokens,val_loss\n" + "".join(
    f",{scheme},{seed},{step},{4096 * step},{3 - step / 100}\n"
    for scheme in ("rope", "sinusoidal")
    for seed in (0, 1, 2)
    for step in (50, 100)
)
AS_A_STUDY = "corpus,setting,pos,seed,tokens,lr,scale,base,at_tokens,val_loss\n" + "".join(
    f"kjv,{arm},{4096 * step},{2.5 - step / 200}\n"
    for arm in (
        "backbone,rope,0,819200,0.003,,10000",  # as near as the other experiment's, which has more seeds
        "backbone,rope,0,819200,0.003,,500",
        "pos.fraction=0.125,rope_partial,0,819200,0.003,,10000",
        "intervention=smear,none,0,819200,0.003,,",
        "backbone,sinusoidal,0,819200,0.003,0.2,10000",
    )
    for step in (100, 200)
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Of two made-up experiments."""
    results = tmp_path_factory.mktemp("page") / "results"
    for name, table in (("kjv-tiny-cpu/amplitude", AS_A_REPORT), ("why", AS_A_STUDY)):
        (results / name).mkdir(parents=True)
        (results / name / "curves.csv").write_text(table)
    out = results / "pages" / "of mine" / "explore.html"  # in folders that do not exist yet
    main(["--results", str(results), "--out", str(out)])
    return out


@pytest.mark.parametrize(("seeds", "has_interval"), [(3, True), (2, False)])
def test_a_measured_curve_has_an_interval_with_as_many_seeds_as_a_verdict_needs(seeds, has_interval, tmp_path):
    rows = [row for row in AS_A_REPORT.splitlines(keepends=True) if seeds == 3 or row.split(",")[2] != "2"]
    (tmp_path / "kjv-tiny-cpu" / "amplitude").mkdir(parents=True)
    (tmp_path / "kjv-tiny-cpu" / "amplitude" / "curves.csv").write_text("".join(rows))
    main(["--results", str(tmp_path), "--out", str(tmp_path / "explore.html")])
    assert ('"low":' in (tmp_path / "explore.html").read_text()) == has_interval


def test_the_page_computes_what_our_classes_compute(browser, page):
    open_page(browser, page)
    q, k = torch.randn(2, 32, generator=torch.Generator().manual_seed(0)).double()
    t5, kerple = T5(1, buckets=20, max_distance=90, head_dim=32), Kerple(1)
    kerple.load_state_dict({"r1": torch.tensor([1.3]), "r2": torch.tensor([0.4])})
    at = torch.tensor([255 - distance for distance in DISTANCES] + [255])
    rotary = {
        "Rotary": (Rotary(32, 500.0, fraction=0.5), {"base": 500, "fraction": 0.5}),
        "Truncated": (Truncated(32, 10_000.0, kept=0.25), {"base": 10_000, "kept": 0.25}),
    }
    biases = {
        "Alibi": (Alibi(4), {"slope": 0.25}),
        "T5": (t5, {"buckets": 20, "max_distance": 90, "spread": 1}),
        "Kerple": (kerple, {"r1": 1.3, "r2": 0.4}),
    }
    numbers = t5.table.weight[:, 0].tolist()
    script = """
        const [q, k, distances, rotary, biases, numbers, tokens] = arguments;
        const of = (cases, what) => Object.fromEntries(Object.entries(cases).map(([name, settings]) =>
            [name, distances.map((distance) => what(SCHEMES[name], distance, settings))]));
        return {
            ...of(rotary, (scheme, distance, settings) => scheme.product(q, k, distance, settings)),
            ...of(biases, (scheme, distance, settings) => scheme.bias(distance, settings, 32, numbers)),
            Sinusoidal: distances.map((at) => SCHEMES.Sinusoidal.embed(tokens, at, {base: 700, scale: 0.3})),
            Falls: LOGITS.byDistance(SCHEMES.Alibi, {slope: 0.1}, 0.5, 1).y,
        };"""
    settings = [{name: own for name, (_, own) in cases.items()} for cases in (rotary, biases)]
    found = browser.execute_script(script, q.tolist(), k.tolist(), DISTANCES, *settings, numbers, [0.5] * 8)
    for name, (scheme, _) in rotary.items():
        queries, keys = scheme.rotate(q.float().expand(6, -1), k.float().expand(6, -1), at)
        assert found[name] == pytest.approx((queries[-1] @ keys[:-1].T).tolist(), abs=1e-4), name
    for name, (bias, _) in biases.items():
        logits = bias.bias(at)
        assert logits is not None
        assert found[name] == pytest.approx(logits[0, -1, :-1].tolist(), abs=1e-4), name
    expected = Sinusoidal(8, 700.0, scale=0.3).embed(torch.full((5, 8), 0.5), torch.tensor(DISTANCES))
    assert torch.allclose(torch.tensor(found["Sinusoidal"]), expected, atol=1e-5)
    assert found["Falls"][0] - found["Falls"][200] == pytest.approx(20)


def test_the_nearest_measured_setting_is_named(browser, page):
    open_page(browser, page)

    def choose(scheme: str, **sliders: int) -> str:
        browser.execute_script(
            """const form = document.getElementById("controls");
            document.getElementById("scheme").value = arguments[0];
            for (const [name, value] of Object.entries(arguments[1])) form.elements[name].value = value;
            form.dispatchEvent(new Event("input"));""",
            scheme, sliders,
        )  # fmt: skip
        return browser.find_element("id", "named").text

    amplitude = "3 seeds (0, 1, 2); 410K tokens; results/kjv-tiny-cpu/amplitude."
    assert choose("Rotary") == f"Measured: rope, base 10,000, fraction 1; {amplitude}"
    assert "base 500, fraction 1; kjv, learning rate 0.003; seed 0; 819K tokens; results/why" in choose(
        "Rotary", base=300
    )
    assert "rope_partial, base 10,000, fraction 0.125" in choose("Rotary", base=650, fraction=0)
    assert choose("Sinusoidal") == f"Measured: sinusoidal, base 10,000, amplitude 0.1; {amplitude}"
    assert "amplitude 0.2" in choose("Sinusoidal", scale=700)
    assert choose("PositionScheme") == choose("Kerple") == "There is no curve for this scheme in results/ yet."
    shown = browser.find_elements("css selector", "[data-control]:not([hidden])")
    assert [slider.get_attribute("data-control") for slider in shown] == ["likeness", "r1", "r2"]


OF_OTHER_RATES = "corpus,setting,pos,seed,tokens,lr,scale,base,at_tokens,val_loss\n" + "".join(
    f"text,backbone,{pos},{seed},819200,{rate},{scale},10000,{409600 * step},{loss + 1 - step / 2}\n"
    for pos, seeds, rate, scale, loss in (
        ("rope", (0, 1, 2), 0.006, "", 1.4),
        ("sinusoidal", (0, 1, 2), 0.006, 0.1, 1.59),  # at RoPE's learning rate
        ("sinusoidal", (0, 1, 2), 0.0042, 0.1, 1.58),
        ("sinusoidal", (0,), 0.003, 0.1, 1.57),  # of one seed
    )
    for seed in seeds
    for step in (1, 2)
)


def test_the_curves_drawn_beside_an_arm_are_the_best_of_their_schemes_with_its_seeds(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    (tmp_path / "curves.csv").write_text(OF_OTHER_RATES)
    main(["--results", str(tmp_path), "--out", str(tmp_path / "explore.html")])
    open_page(browser, tmp_path / "explore.html")
    assert (
        "rope, base 10,000, fraction 1; text, learning rate 0.006; 3 seeds" in browser.find_element("id", "named").text
    )
    browser.find_element("css selector", "#loss svg[tabindex]").send_keys(Keys.ARROW_RIGHT * 2)
    ends = browser.find_element("css selector", "#loss .values").text
    assert ends == "million tokens 0.819: sinusoidal 1.580 · rope 1.400 (1.400 to 1.400)"


def test_it_works_from_the_keyboard_and_on_a_phone_in_the_dark(browser, page):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, page)
    with phone(browser, "dark"):
        line = "return document.querySelector('#logits .line').getAttribute('d')"
        before = browser.execute_script(line)
        browser.find_element("name", "base").send_keys(Keys.ARROW_LEFT * 3)
        assert browser.execute_script(line) != before
        browser.find_element("css selector", "#logits svg[tabindex]").send_keys(Keys.ARROW_RIGHT)
        assert browser.find_element("css selector", "#logits .values").text.startswith("distance, tokens 0: rope ")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        assert overprinted(browser) == []
        fields = browser.find_elements("css selector", "select, input, button, svg[role]")
        assert [
            one.get_attribute("outerHTML") for one in fields if one.is_displayed() and not one.accessible_name
        ] == []


def test_the_committed_page_is_small_and_has_the_code_of_today():
    committed = (ROOT / "docs" / "explore.html").read_text()
    assert len(committed) < 500_000

    def without_data(text: str) -> list[str]:
        return [line for line in text.splitlines() if 'id="data"' not in line]

    assert without_data(committed) == without_data(html(ROOT / "results", CONF))


def test_the_page_is_written_where_the_locale_is_not_utf_8(tmp_path):
    (tmp_path / "curves.csv").write_text(AS_A_STUDY)
    given = ["-m", "posenc.explore", "--results", tmp_path, "--out", tmp_path / "explore.html"]
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = fresh_python(*given, env=plain)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_page_that_is_a_folder_is_refused(tmp_path, capsys):
    (tmp_path / "curves.csv").write_text(AS_A_STUDY)
    with pytest.raises(SystemExit, match="2"):
        main(["--results", str(tmp_path), "--out", str(tmp_path)])
    assert capsys.readouterr().err == f"posenc explore: --out={tmp_path} is a folder: name a file\n"


@pytest.mark.parametrize("base", ["null", "[1, 2]"])
def test_a_scheme_of_a_user_s_whose_base_is_no_number_is_left_out(tmp_path, base):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    (conf / "pos" / "mine.yaml").write_text(f"_target_: posenc.positions.Rotary\nbase: {base}\n")
    (tmp_path / "curves.csv").write_text(f"{AS_A_STUDY}kjv,backbone,mine,0,819200,0.003,,,409600,2\n")
    assert '"name":"mine"' not in html(tmp_path, conf)


def test_a_plan_whose_corpora_are_no_mapping_is_refused(tmp_path):
    (tmp_path / "curves.csv").write_text(AS_A_STUDY)
    (tmp_path / "plan.yaml").write_text("corpora: [a]\n")
    with pytest.raises(UserError, match="plan.yaml cannot be read"):
        html(tmp_path, CONF)


def test_a_scheme_of_a_user_s_may_inherit_as_hydra_has_it_and_a_plan_need_not_name_its_corpora(tmp_path):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    (conf / "pos" / "mine.yaml").write_text("defaults: [rope, _self_]\nbase: 500\n")
    (tmp_path / "curves.csv").write_text(AS_A_STUDY.replace(",rope,", ",mine,").replace(",,500", ",,"))
    (tmp_path / "plan.yaml").write_text("corpora:\n")
    assert '"base":500' in html(tmp_path, conf)


def test_each_setting_of_a_report_has_its_own_budget(tmp_path):
    longer = "batch_size=32,rope,0,200,819200,2.5\n"
    (tmp_path / "curves.csv").write_text(AS_A_REPORT + longer)
    (data,) = (line for line in html(tmp_path, CONF).splitlines() if 'id="data"' in line)
    assert re.findall(r'"tokens":(\d+)', data) == ["409600", "409600", "819200"]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (AS_A_REPORT.replace("tokens", "token"), r"curves.csv, row 1, column tokens cannot be read: Field required"),
        (AS_A_STUDY.replace(",,", ",nan,").replace("0.2", "nan"), "has no curves.csv of a scheme"),
        (AS_A_STUDY.replace(",0.003,", ",0.003,nan,"), "row 1 has more or fewer cells than the header"),
        (AS_A_STUDY.splitlines(keepends=True)[0], "curves.csv has no curves: restore or delete it"),
        (AS_A_STUDY.replace("2.", "x."), r"row 1, column val_loss cannot be read: "),
        (AS_A_STUDY.replace("at_tokens", "tokens_at"), r"row 1, column at_tokens cannot be read: Field required"),
        (AS_A_STUDY.replace("backbone", "pos.base=many").replace("0.125", "many"), "has no curves.csv of a scheme"),
    ],
)
def test_a_table_that_is_not_one_is_refused_in_a_sentence(table, sentence, tmp_path):
    (tmp_path / "curves.csv").write_text(table)
    with pytest.raises(UserError, match=sentence):
        html(tmp_path, CONF)
