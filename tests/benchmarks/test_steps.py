"""The scripts that time whole steps and whole sweeps, at toy size: their figures mean nothing here."""

from tests.benchmarks.scripts import cells, script


def test_every_scheme_s_step_is_set_against_the_sinusoid_s():
    result = script(
        "schemes", "experiment=smoke", "--schemes", "sinusoidal,rope,rope pos.layout=interleaved", "--rounds", "3"
    )
    assert result.returncode == 0, result.stderr
    rows = cells(result.stdout)
    assert rows["sinusoidal"][1] == "1.000"
    assert all(float(rows[name][1]) > 0 for name in ("rope", "rope pos.layout=interleaved"))


def test_the_loop_of_a_run_is_set_against_a_bare_one():
    result = script("loop", "experiment=smoke", "logger=csv", "--steps", "10", "--rounds", "2")
    assert result.returncode == 0, result.stderr
    rows = cells(result.stdout)
    phases = [float(row[0]) for name, row in rows.items() if name.startswith("of that")]
    assert len(phases) == 4
    assert float(rows["bare loop"][0]) > 0
    assert "times the bare loop's time" in result.stdout


def test_runs_at_a_time_have_the_curves_they_have_alone():
    result = script("together", "experiment=smoke", "pos=none,rope")
    assert result.returncode == 0, result.stderr
    assert set(cells(result.stdout)) >= {"1", "2"}
    assert "2 of 2 curves are those of the run alone" in result.stdout
