"""Imports run one way, and the middle floor stays apart."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "meanfield"
FLOOR = {
    "errors": 0,
    "result": 0,
    "measures": 1,
    "sphere": 2,
    "model": 3,
    "dynamics": 4,
    "equilibria": 4,
    "transport": 4,
    "regularity": 4,
    "results": 5,
    "plots": 6,
    "plots_points": 7,
    "cli_parsing": 6,
    "movies": 8,
    "cli_pictures": 9,
    "cli_options": 8,
    "cli_analysis": 9,
    "cli_particles": 10,
    "cli_minimize": 10,
    "cli": 11,
}
ALLOWED_NEIGHBOURS = {("transport", "dynamics")}
OUTSIDE = {
    "xarray": {"results", "plots", "plots_points", "movies"},  # pictures name the type only
    "matplotlib": {"plots", "plots_points", "movies"},
    "PIL": {"movies"},
    "typer": {"cli", "cli_options", "cli_analysis", "cli_particles", "cli_minimize"},
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
        if there == here or (late and there in ("results", "plots", "plots_points", "movies")):
            continue
        assert FLOOR[there] < FLOOR[here] or (here, there) in ALLOWED_NEIGHBOURS, (
            f"{path} imports {module}"
        )


def test_modules_stay_readable():
    long = {str(p): n for p in MODULES if (n := len(p.read_text().splitlines())) > 450}
    assert not long
