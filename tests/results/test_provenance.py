"""Attributes that say where a result comes from."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from meanfield.results import provenance


def test_attributes():
    attrs = provenance.attributes("A title", {"D": np.eye(2), "path": Path("a.csv")}, "run me")
    assert attrs["title"] == "A title"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ run me", attrs["history"])
    assert json.loads(attrs["parameters"]) == {"D": [[1.0, 0.0], [0.0, 1.0]], "path": "a.csv"}
    assert set(json.loads(attrs["environment"])) == {"python", "platform", "packages", "git"}


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        provenance.to_json({"a": np.nan})
    with pytest.raises(TypeError, match="set cannot be written"):
        provenance.to_json({"a": {1}})


def test_the_git_revision_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_revision() is None

    def git(*words):
        name = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(
            ["git", *name, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    assert provenance.git_revision() is None  # no revision yet
    Path("file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message", "first")
    revision = git("rev-parse", "HEAD")
    assert provenance.git_revision() == revision
    Path("file").write_text("two")
    assert provenance.git_revision() == revision + "-dirty"


def test_no_git_at_all(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance.git_revision() is None


def test_unknown_packages():
    assert provenance.installed("no-such-package-anywhere") == "unknown"
