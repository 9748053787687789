"""Where a result comes from."""

from posenc.training import environment


def test_a_finished_run_does_not_wait_for_git(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(environment, "GIT_TIMEOUT", 0.1)
    assert environment.commit() is None
