"""Runs with other settings are compared in panels of their own."""

from posenc.analysis.settings import swept_keys
from tests.analysis.synthetic import panels, run, sweep


def test_a_second_axis_makes_a_panel_a_value():
    runs = [
        run(scheme, 0, setting={"model": model, "model.layers": layers, "model.width": width})
        for model, layers, width in (("tiny", 4, 128), ("small", 8, 512))
        for scheme in ("rope", "sinusoidal")
    ]
    assert swept_keys(runs) == ["model"]  # and not layers and width, which the choice brings along
    found = panels(sweep(*runs))
    assert [panel.setting for panel in found] == [{"model": "small"}, {"model": "tiny"}]
    assert all({one.scheme for one in panel.arms} == {"rope", "sinusoidal"} for panel in found)


def test_a_scheme_without_the_swept_key_is_in_every_panel():
    runs = [run("rope", 0, setting={"pos.base": base}) for base in (1e4, 5e5)]
    found = panels(sweep(*runs, run("none", 0)), baseline="none")
    assert len(found) == 2
    assert all({one.scheme for one in panel.arms} == {"rope", "none"} for panel in found)


def test_keys_that_each_only_one_scheme_has_are_crossed():
    runs = [run("rope", 0, setting={"pos.base": base}) for base in (5e5, 1e4)]
    runs += [run("sinusoidal", 0, setting={"pos.scale": scale}) for scale in ("matched", 1.0)]
    found = panels(sweep(*runs))
    assert [tuple(panel.setting.values()) for panel in found] == [
        (1e4, 1.0), (1e4, "matched"), (5e5, 1.0), (5e5, "matched")
    ]  # fmt: skip
    assert all(len(panel.arms) == 2 for panel in found)


def test_where_no_scheme_has_a_swept_key_it_makes_no_panel_and_hides_none():
    runs = [run("none", 0, setting={"context": context}) for context in (256, 512)]
    runs += [run("learned", 0, setting={"context": 256, "pos.scale": scale}) for scale in (1.0, 2.0)]
    runs += [run("rope", 0, setting={"context": 512, "pos.base": base}) for base in (1e4, 5e5)]
    assert [tuple(panel.setting.items()) for panel in panels(sweep(*runs))] == [
        (("context", 256), ("pos.scale", 1.0)),
        (("context", 256), ("pos.scale", 2.0)),
        (("context", 512), ("pos.base", 1e4)),
        (("context", 512), ("pos.base", 5e5)),
    ]


def test_runs_in_no_combination_of_values_that_others_have_get_a_panel():
    runs = [
        run("sinusoidal", 0, setting={"pos.base": base, "pos.scale": scale})
        for base in (1e4, 5e5)
        for scale in (0.1, 0.2)
    ]
    learned = [run("learned", 0, setting={"pos.scale": scale}) for scale in (0.05, 0.3)]
    found = panels(sweep(*runs, *learned), baseline="learned")
    of_learned = [panel.setting for panel in found if [arm.scheme for arm in panel.arms] == ["learned"]]
    assert of_learned == [{"pos.scale": 0.05}, {"pos.scale": 0.3}]
    assert len(found) == 6


def test_a_swept_key_may_be_a_list():
    runs = [run("rope", 0, setting={"optim.betas": betas}) for betas in ([0.9, 0.95], [0.9, 0.99])]
    assert [panel.title for panel in panels(sweep(*runs))] == ["optim.betas=[0.9, 0.95]", "optim.betas=[0.9, 0.99]"]


def test_a_grid_that_is_not_full_has_a_panel_for_each_point_there_is():
    points = [{"model": "tiny", "context": 256}, {"model": "small", "context": 512}, {"model": "small", "context": 256}]
    assert len(panels(sweep(*(run("rope", 0, setting=point) for point in points)))) == 3


def test_many_keys_that_change_one_at_a_time_have_a_panel_each():
    keys = {f"data.key{number}": 0 for number in range(24)}
    runs = [run("rope", 0, setting=keys), *(run("rope", 0, setting={**keys, key: 1}) for key in keys)]
    assert len(panels(sweep(*runs))) == 25


def test_a_baseline_with_one_value_of_its_own_key_is_in_every_panel_of_it():
    runs = [run("rope", 0, setting={"pos.base": base}) for base in (10_000, 500_000)]
    found = panels(sweep(*runs, run("sinusoidal", 0, setting={"pos.base": 10_000})))
    assert len(found) == 2
    assert all(len(panel.rivals) == 1 for panel in found)


def test_choices_that_change_together_are_all_named():
    runs = [
        run(scheme, 0, setting={"batch_size": size, "data": data})
        for size, data in ((16, "kjv"), (64, "text"))
        for scheme in ("rope", "sinusoidal")
    ]
    assert [panel.title for panel in panels(sweep(*runs))] == ["batch_size=16, data=kjv", "batch_size=64, data=text"]
