"""Imports run one way, and the middle floor stays apart."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "meanfield"
FLOOR = {
    "errors": 0,
    "result": 0,
    "arguments": 1,
    "measures": 1,
    "sphere": 2,
    "model": 3,
    "dynamics": 4,
    "equilibria": 4,
    "transport": 4,
    "regularity": 4,
    "results": 5,
    "plots": 6,
    "cli": 7,
}
ALLOWED_NEIGHBOURS = {("transport", "dynamics")}
OUTSIDE = {
    "xarray": {"results", "plots"},  # pictures name the type only
    "matplotlib": {"plots"},
    "PIL": {"plots"},
    "typer": {"cli"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path):
    """Modules imported at import time: methods may import results and plots lazily."""
    tree = ast.parse(path.read_text())
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        late = id(node) in lazy
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, late
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, late


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    here = room(path)
    if here == "__init__":
        return
    for module, late in imported(path):
        top = module.split(".")[0]
        if top in OUTSIDE:
            assert here in OUTSIDE[top], f"{path} imports {module}"
        if top != "meanfield" or module == "meanfield":
            continue
        there = module.split(".")[1]
        if there == here or (late and there in ("results", "plots")):
            continue
        assert FLOOR[there] < FLOOR[here] or (here, there) in ALLOWED_NEIGHBOURS, (
            f"{path} imports {module}"
        )


def test_modules_stay_readable():
    long = {str(p): n for p in MODULES if (n := len(p.read_text().splitlines())) > 450}
    assert not long
