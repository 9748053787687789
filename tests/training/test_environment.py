"""Where a result comes from."""

import subprocess

from posenc.training import environment


def test_a_finished_run_does_not_wait_for_git(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(environment, "GIT_TIMEOUT", 0.1)
    assert environment.commit() is None


def test_a_commit_says_if_files_have_changed_and_an_installed_package_has_none(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    package = tmp_path / "src" / "posenc"
    (package / "training").mkdir(parents=True)
    file = package / "training" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(file))
    file.touch()
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-q", "-m", "second"], check=True)
    clean = environment.commit()
    assert clean
    assert not clean.endswith("-dirty")
    (tmp_path / "results.csv").touch()
    assert environment.commit() == clean
    file.write_text("changed")
    assert environment.commit() == f"{clean}-dirty"
    file.write_text("")
    (package / "scheme.py").touch()
    assert environment.commit() == f"{clean}-dirty"
    (package / "conf").mkdir()  # as in an installed package
    assert environment.commit() is None
