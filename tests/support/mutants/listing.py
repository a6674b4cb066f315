"""Mutants of a module: its source with one thing changed, as cosmic-ray changes it.

Replacements are near what stands there (``<`` by ``<=`` and ``>=``, a number by its neighbours):
those far off (``+`` by ``<<``) die wherever the line is run at all, and would only raise the score.
What is annotated, and how classes are decorated, stays: types are for mypy, and a dataclass that is
not frozen computes the same.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_ARITHMETIC = (
    *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "Pow_Mul"),
    *("LShift_RShift", "RShift_LShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitOr"),
)
_COMPARISONS = (
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
)
OPERATORS = (
    *(f"ReplaceBinaryOperator_{each}" for each in _ARITHMETIC),
    *(f"ReplaceComparisonOperator_{each}" for each in _COMPARISONS),
    *(f"ReplaceUnaryOperator_Delete_{each}" for each in ("USub", "Invert", "Not")),
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"),
    *("ExceptionReplacer", "NumberReplacer", "RemoveDecorator"),
)


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    operator, occurrence : cosmic-ray's, and its how manieth place in the module
    line : where it is
    was, now : what stood there, and what stands there instead, without the indentation
    source : of the whole module with the change
    """

    operator: str
    occurrence: int
    line: int
    was: str
    now: str
    source: str

    @property
    def key(self) -> tuple[str, int]:
        return self.operator, self.occurrence


def places(source: str) -> list[tuple[str, int]]:
    """Where a module can be changed: operator and occurrence, those without meaning included."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast(source)))
    found = []
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
        found += [(name, occurrence) for occurrence in range(count)]
    return found


def sample(source: str, seed: int) -> Iterator[Mutant]:
    """All mutants that can be compiled and mean something else, in a random order: the first n are
    a sample of n.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    meant, drawn = _meaning(source), places(source)
    Random(seed).shuffle(drawn)
    for name, occurrence in drawn:
        try:
            changed = mutate_code(source, get_operator(f"core/{name}")(), occurrence)
            same = changed is None or _meaning(changed) == meant
        except (SyntaxError, AttributeError):
            continue  # cosmic-ray replaces no exception that is named with its module
        if not same:
            yield Mutant(name, occurrence, *_difference(source, changed), changed)


def digest(source: str) -> str:
    """Stands for all of a module but its comments and documentation."""
    tree = ast.parse(source)
    _drop_documentation(tree)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _meaning(source: str) -> str:
    """What a module does, without what is for its readers and for mypy."""
    tree = ast.parse(source)
    _drop_documentation(tree)
    nothing = ast.Constant(0)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for each in ast.walk(node):
                if isinstance(each, ast.AnnAssign):
                    each.annotation = nothing
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):
            # Which of them may be given by name alone is for who calls.
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [each for each in node.kw_defaults if each is not None]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, ast.ClassDef):
            # A class that is no dataclass may be made from a file by its types.
            made_by_hand = bool(node.decorator_list) or "NamedTuple" in map(ast.unparse, node.bases)
            node.decorator_list = [nothing] if node.decorator_list else []
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and made_by_hand:
                    each.annotation = nothing
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.test = nothing
    for each in tree.body:
        if isinstance(each, ast.AnnAssign):
            each.annotation = nothing
    return ast.dump(tree)


def _drop_documentation(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value = ast.Constant(0)


def _difference(before: str, after: str) -> tuple[int, str, str]:
    """Line and text of the first line that differs, before and after."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    for line, (was, now) in enumerate(pairs, 1):
        if was != now:
            return line, was.strip(), now.strip()
    raise AssertionError("the two are alike")
