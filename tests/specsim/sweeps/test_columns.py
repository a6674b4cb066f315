"""The columns of answers: types that hold all values, and tables that agree."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from specsim.api.result import plain
from specsim.intervals import Interval
from specsim.sweeps.chunks import columns_of
from specsim.sweeps.columns import (
    CLOSING,
    fitted,
    input_kinds,
    joined,
    kind_of,
    kinds_of,
    part_table,
    together,
)
from specsim.sweeps.definition import SweepDefinition
from specsim.sweeps.values import Spaced, Stepped

SIMPLE = ("null", "bool", "int64", "double", "string")
KINDS = (*SIMPLE, *(f"list<{kind}>" for kind in SIMPLE[1:]))
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab")
CELLS = SCALARS | st.lists(SCALARS, min_size=1, max_size=3).filter(
    lambda cells: any(cell is not None for cell in cells)
)


def test_types_have_one_least_upper_bound() -> None:
    """Idempotent, commutative and associative: the order in which parts come decides nothing."""
    for one, two, three in product(KINDS, repeat=3):
        assert joined(one, one) == joined(one, "null") == one
        assert joined(one, two) == joined(two, one)
        assert joined(joined(one, two), three) == joined(one, joined(two, three))


@given(st.lists(CELLS, min_size=1, max_size=6))
def test_a_column_holds_what_it_was_given(cells: list[Any]) -> None:
    answers = [{"cell": cell} for cell in cells]
    table = part_table(0, [{}] * len(cells), answers, "1", {})
    kind = kind_of(cells)
    assert kinds_of(table.schema)["cell"] == kind
    for cell, found in zip(cells, table.column("cell").to_pylist(), strict=True):
        assert _same(cell, found)


def _same(cell: Any, found: Any) -> bool:
    """Whether a cell is the value itself, the value in a list of its own, or its text."""
    if isinstance(found, list) and cell is not None:
        given_cells = cell if isinstance(cell, list) else [cell]
        return all(_same(one, two) for one, two in zip(given_cells, found, strict=True))
    if isinstance(found, str) and not isinstance(cell, str) and cell is not None:
        return bool({"true": True, "false": False}.get(found) is cell or float(found) == cell)
    return bool(found == cell)


@given(st.lists(st.lists(st.fixed_dictionaries({}, optional={"a": CELLS, "b": CELLS}), max_size=3)))
def test_parts_that_agree_are_one_table(parts: list[list[dict[str, Any]]]) -> None:
    """Rows in parts, fitted, against all rows at once."""
    parts = [rows for rows in parts if rows] or [[{"a": 1}]]
    rows = [row for part in parts for row in part]
    tables, first = [], 0
    for part in parts:
        tables.append(part_table(first, [{}] * len(part), part, "1", {}))
        first += len(part)
    kinds = together(kinds_of(table.schema) for table in tables)
    found = pa.concat_tables([fitted(table, kinds) for table in tables])
    at_once = part_table(0, [{}] * len(rows), rows, "1", {})
    assert kinds == kinds_of(at_once.schema)
    assert list(kinds)[-len(CLOSING) :] == list(CLOSING)
    for name in kinds:
        # Where texts and numbers meet, 1 may have become 1.0 before it became a text.
        if "string" not in kinds[name]:
            assert found.column(name).to_pylist() == at_once.column(name).to_pylist()


def test_columns_of_inputs_are_known_beforehand() -> None:
    inputs = {
        "c": (0, 0.5),
        "gamma": Stepped(1, 4),
        "overhead": Stepped(0.5, 2, 0.5),
        "margin": Spaced(0.1, 1, 3),
        "alpha": ((0.8, 0.7), 0.9),
        "heads": (True, None),
    }
    definition = SweepDefinition("evaluate", inputs, ({"mode": "eager"}, {"prompt": 3}))
    assert input_kinds(definition) == {
        "mode": "string",
        "prompt": "int64",
        "c": "double",
        "gamma": "int64",
        "overhead": "double",
        "margin": "double",
        "alpha": "string",
        "heads": "bool",
    }
    settings = [definition.setting(index) for index in (0, definition.size - 1)]
    table = part_table(0, settings, [{}, {}], "1", input_kinds(definition))
    assert table.column("input_alpha").to_pylist() == ["0.8,0.7", "0.9"]
    assert table.column("input_prompt").to_pylist() == [None, 3]


def test_an_answer_is_one_row() -> None:
    import specsim
    from specsim import LeftOut, Result

    class Several(Result):
        schema = "specsim.test"

        def rows(self) -> list[dict[str, Any]]:
            return [
                {"batch": 1, "speedup": 2.0, "parts": {"draft": 0.5}, "ranges": [[1, 2]]},
                {"batch": 2, "speedup": float("inf"), "setting": "x"},
            ]

        def summary(self) -> dict[str, Any]:
            figures = {"ttft": {"p99": Interval(0.5, 1.0, float("nan"))}}
            return {"title": "no figure", "batch": 9, "figures": figures, "no": []}

    found = columns_of(Several(warnings=("w",), left_out=(LeftOut("batch 3", "too large"),)))
    assert found == {
        "batch": [1, 2],
        "speedup": [2.0, None],
        "parts_draft": [0.5, None],
        "ranges": ["[[1,2]]", None],
        "answer_setting": [None, "x"],
        "summary_batch": 9,
        "figures_ttft_p99": 1.0,
        "figures_ttft_p99_low": 0.5,
        "figures_ttft_p99_high": None,
        "no": None,
        "warnings": ["w"],
        "left_out": ["batch 3: too large"],
    }
    one = columns_of(specsim.evaluate(0.8, 0.05, 4))
    assert one.items() >= plain(specsim.evaluate(0.8, 0.05, 4).rows()[0]).items()
