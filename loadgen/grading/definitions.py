"""Reads Python with `ast`, never runs it: does it define the entry point with a body, and which names does it lack?"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from itertools import pairwise

# Larger programs are not parsed (the parser's memory is some hundred times the text). No answer comes near it.
MAX_PROGRAM_CHARS = 200_000

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__builtins__"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_KEPT_FROM_PROSE = (
    *_FUNCTIONS,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.If,
    ast.Try,
)
_CONTINUES = ("else", "elif", "except", "finally", ")", "]", "}")


def parse(code: str) -> ast.Module | None:
    """The syntax tree, or None for text that is no Python (or is too large or too deep to parse)."""
    if len(code) > MAX_PROGRAM_CHARS:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def defines(tree: ast.Module, entry_point: str) -> bool:
    """Whether running this module leaves `name` (or `Class.method`) defined with a real body.

    An import, a use, or a body of only a docstring, `pass`, `...` or NotImplementedError is no definition.
    """
    name, _, method = entry_point.partition(".")
    return any(_is_definition(node, name, method) for node in _module_level(tree.body))


def mentions(code: str, entry_point: str) -> bool:
    """Whether text that need not parse begins a definition of the entry point on some line."""
    name = entry_point.partition(".")[0]
    heads = (f"def {name}", f"async def {name}", f"class {name}", f"{name} =", f"{name}=")
    for line in code.split("\n"):
        stripped = line.strip()
        for head in heads:
            after = stripped[len(head) : len(head) + 1]
            if stripped.startswith(head) and not (after.isalnum() or after in ("_", "=")):
                return True
    return False


def with_helpers(tree: ast.Module, code: str, others: Iterable[tuple[ast.Module, str]]) -> str:
    """The program, with those top-level statements of the other blocks before it that define names it lacks."""
    sources = [(other, source.split("\n")) for other, source in others]
    offered: dict[str, tuple[int, list[str], ast.stmt]] = {}
    for position, (node, lines) in enumerate((n, lines) for other, lines in sources for n in other.body):
        offered.update(dict.fromkeys(_bound_by(node), (position, lines, node)))
    chosen: dict[int, str] = {}
    lacking = _lacking(tree)
    provided: set[str] = set()
    while lacking:
        name = lacking.pop()
        if name in provided or name not in offered:
            continue
        position, lines, node = offered[name]
        provided.update(_bound_by(node))
        chosen[position] = _source_lines(lines, node)
        lacking |= _lacking(node)
    helpers = [chosen[position] for position in sorted(chosen)]
    return _inserted(tree, code, helpers) if helpers else code


def code_in_prose(text: str) -> str:
    """The top-level statements in text without fences: the whole text if it parses, else the units that do."""
    if parse(text) is not None:
        return text
    kept = [unit for unit in _units(text.split("\n")) if _is_statement(unit)]
    return "\n".join(kept)


def _module_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at module level, those inside if, try, with and loops included."""
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            pending += getattr(node, field, [])
        for handler in getattr(node, "handlers", []):
            pending += handler.body


def _is_definition(node: ast.stmt, name: str, method: str) -> bool:
    if isinstance(node, _FUNCTIONS):
        return not method and node.name == name and _has_body(node.body)
    if isinstance(node, ast.ClassDef) and node.name == name:
        methods = [inner for inner in node.body if isinstance(inner, _FUNCTIONS) and inner.name == method]
        return any(_has_body(inner.body) for inner in methods) if method else _has_body(node.body)
    if isinstance(node, ast.Assign | ast.AnnAssign) and not method:
        return name in _targets(node) and isinstance(
            node.value, ast.Lambda | ast.Call | ast.Name | ast.Attribute
        )
    return False


def _has_body(body: list[ast.stmt]) -> bool:
    return not all(_is_filler(node) for node in body)


def _is_filler(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _bound_by(node: ast.stmt) -> set[str]:
    """Names that a top-level statement may give to another block."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return _targets(node) if isinstance(node, ast.Assign | ast.AnnAssign) else set()


def _lacking(tree: ast.AST) -> set[str]:
    """Names read somewhere and bound nowhere in the tree. Scopes are not told apart: a name bound anywhere is had."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= _bound_by(node)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
    return read - bound - _BUILTINS


def _source_lines(lines: list[str], node: ast.stmt) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _inserted(tree: ast.Module, code: str, helpers: list[str]) -> str:
    """Helpers stand first, but after `from __future__` lines, which Python wants at the top."""
    futures = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    at = max((n.end_lineno or 0 for n in futures), default=0)
    lines = code.split("\n")
    return "\n".join([*lines[:at], *helpers, *lines[at:]])


def _units(lines: list[str]) -> list[str]:
    """Lines grouped as Python would: each begins at column 0 and takes the indented and continuing lines after it."""
    starts = [
        i for i, line in enumerate(lines) if _begins_unit(line) and not (i and lines[i - 1].startswith("@"))
    ]
    return ["\n".join(lines[a:b]) for a, b in pairwise([*starts, len(lines)])]


def _begins_unit(line: str) -> bool:
    return bool(line) and not line[0].isspace() and not line.startswith(_CONTINUES)


def _is_statement(unit: str) -> bool:
    tree = parse(unit)
    return tree is not None and any(isinstance(node, _KEPT_FROM_PROSE) for node in tree.body)
