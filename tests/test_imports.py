"""The drawing of the house: imports point one way, and Ray, aiohttp and subprocesses are touched in named places only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("loadgen", "cluster", "reports")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# package -> packages that it may import
ARROWS = {"loadgen": {"loadgen"}, "reports": {"reports", "loadgen"}, "cluster": {"cluster", "loadgen"}}
COMPOSITION_ROOT = "cluster.cli"
NAMED_PLACES = {
    "ray": {"cluster.actors"},
    "rich": {"cluster.cli", "cluster.launch", "cluster.progress", "reports.terminal"},
    "click": {"cluster.cli"},
    "time": {"loadgen.clock"},
}
# The simulator is a server with its own clock; the sandbox's child runs outside our process.
OUTSIDE = ("loadgen.sim", "loadgen.grading")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_follow_the_arrows(path: Path) -> None:
    module = name_of(path)
    if module == COMPOSITION_ROOT:
        return
    allowed = ARROWS[module.partition(".")[0]]
    ours = {name.partition(".")[0] for name in imports_of(path)} & set(PACKAGES)
    assert ours <= allowed


@pytest.mark.parametrize("library", NAMED_PLACES)
def test_libraries_stay_in_their_places(library: str) -> None:
    users = {
        name_of(path)
        for path in MODULES
        if any(name.partition(".")[0] == library for name in imports_of(path))
    }
    assert {user for user in users if not user.startswith(OUTSIDE)} <= NAMED_PLACES[library]


def test_there_is_no_import_cycle() -> None:
    names = {name_of(path) for path in MODULES}
    graph = {name_of(path): imports_of(path) & names - {name_of(path)} for path in MODULES}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for imported in sorted(graph[module]):
                visit(imported, (*trail, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
