"""What ``specsim.compare`` compares: figures by setting, of results, profiles and acceptance files.

A figure is a number with the interval that stands beside it, or without, or a word.  Some columns
of a row say of what setting it is; which ones those are is said here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan
from typing import Any

from specsim.checks import InvalidArgumentError
from specsim.intervals import Interval, normal_quantile

Value = Interval[float] | str | bool | None

_LEVEL = 0.95
# Columns that say of what a row is, in any table.
_SETTING = frozenset(
    (
        *("accelerator", "tensor_parallel", "drafter", "scheme", "rule", "latency", "statistic"),
        *("temperature", "prompts", "batch", "context", "mode", "step", "part", "run", "position"),
        *("change", "first_batch", "study"),
    )
)
# Of them, those that are compared more often than others are compared at them.
SUBJECT = ("accelerator", "tensor_parallel", "drafter", "scheme", "rule")
# How columns of a sweep begin that are its inputs.
INPUT = "input_"
# And those that do in one table alone, where elsewhere they are an answer, by schema and table.
_OWN_SETTING: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("specsim.calibrate_engine", "rows"): ("gamma",),
    ("specsim.read", "rows"): ("gamma",),
    ("specsim.read", "steps"): ("gamma", "repeat", "drafter_loaded"),
    ("specsim.replay", "rows"): ("gamma",),
    ("specsim.serving", "rows"): ("gamma",),
    ("specsim.serving", "by_rate"): ("rate",),
    ("specsim.validate", "rows"): ("gamma", "setting", "predicted_from"),
    ("specsim.validate_engine", "rows"): ("gamma",),
}
# Results whose answer has intervals as low, best, high in one list.
_IN_LISTS = ("specsim.serving", "specsim.serving_verdict")
# Sentences, files, and what other entries say as well.
_NOT_COMPARED = frozenset(
    (
        *("title", "why", "wish", "verdict", "errors", "failures", "configuration", "kind"),
        *("profile", "positions_file", "acceptance_file", "prediction", "sha256", "sources"),
        *("page", "level"),
    )
)
# Figures whose interval is not called as they are.
_ENDS: Mapping[str, tuple[str, str]] = {
    "speedup": ("low", "high"),
    "survival": ("low", "high"),
    "predicted_speedup": ("predicted_low", "predicted_high"),
    "measured_speedup": ("measured_low", "measured_high"),
}
# Whose ends are the shortest and the longest that might be chosen, which is no interval of chance.
_CHOSEN = ("gamma",)


@dataclass(frozen=True)
class FigureKey:
    """Which figure it is.

    table : entry of the answer; empty for what the answer says as a whole
    setting : the columns that say of what it is, and what they say
    figure : its name
    """

    table: str
    setting: tuple[tuple[str, str], ...]
    figure: str

    def without(self, columns: Collection[str]) -> FigureKey:
        """The same figure, these columns of its setting unsaid."""
        kept = tuple(each for each in self.setting if each[0] not in columns)
        return replace(self, setting=kept)

    @property
    def where(self) -> str:
        """In words, such as ``speedup, temperature 1, gamma 4``; words of a setting stand alone."""
        words = [] if self.table in ("", "rows") else [self.table.replace("_", " ")]
        for name, value in self.setting:
            named = f"{name.removeprefix(INPUT).replace('_', ' ')} {value}"
            words.append(named if _is_number(value) else value)
        return ", ".join(words)


@dataclass(frozen=True)
class Side:
    """One of the two that are compared.

    name : its file, or which of the two it is
    kind : schema of a result, or what the file is
    inputs : what it was made of, by dotted name
    values : figures
    warnings : its own
    """

    name: str
    kind: str
    inputs: Mapping[str, Any]
    values: Mapping[FigureKey, Value]
    warnings: tuple[str, ...] = ()


def document_side(document: Any, name: str) -> Side:
    """The JSON form of a result (``Result.document``).

    Raises InvalidArgumentError where it is something else.
    """
    answer = document.get("answer") if isinstance(document, Mapping) else None
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if not isinstance(schema, str) or not isinstance(answer, Mapping):
        raise InvalidArgumentError(
            f"{name} is no result, profile or acceptance file: write a result with --format json"
        )
    values: dict[FigureKey, Value] = {}
    whole: dict[str, Any] = {}
    told: set[str] = set()
    read = partial(figures, in_lists=schema in _IN_LISTS, level=_level(schema))
    for table, entry in answer.items():
        if table in _NOT_COMPARED:
            continue
        if isinstance(entry, list) and entry and all(isinstance(row, Mapping) for row in entry):
            setting = _SETTING | {*_OWN_SETTING.get((schema, table), ())}
            if schema == "specsim.evaluation":
                setting = _beside_figures(entry)
            values |= read(table, entry, setting)
            told |= {_word(row.get("latency")) for row in entry}
        else:
            whole[table] = entry
    if isinstance(whole.get("metrics"), Mapping):  # without the latencies that rows tell, too
        whole["metrics"] = {k: each for k, each in whole["metrics"].items() if k not in told}
    values |= read("", [whole], frozenset())
    asked, warnings = document.get("inputs"), document.get("warnings")
    inputs = flat(asked) if isinstance(asked, Mapping) else {}
    return Side(
        name,
        schema,
        {"specsim": document.get("specsim"), **inputs},
        values,
        tuple(map(str, warnings)) if isinstance(warnings, list) else (),
    )


def _level(schema: str) -> float:
    """Of the intervals in a result, where a row does not say it."""
    if schema != "specsim.extrapolation":
        return _LEVEL
    from specsim.extrapolation.curve import INTERVAL_LEVEL

    return INTERVAL_LEVEL


def _beside_figures(rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Of an evaluation, the inputs that vary: columns that are none of its figures."""
    from specsim.optimizers.evaluation import FIGURES

    return frozenset(rows[0]) - set(FIGURES)


def figures(
    table: str,
    rows: Iterable[Mapping[str, Any]],
    setting: frozenset[str],
    in_lists: bool = False,
    level: float = _LEVEL,
) -> dict[FigureKey, Value]:
    """The figures of a table; rows of one setting are told apart by their order.

    rows : as JSON has them.  ``x_low`` and ``x_high`` are the interval of ``x``, numbers or lists
    setting : the columns that say of what a row is
    in_lists : three numbers that rise are low, best and high
    level : of intervals, unless the row says another
    """
    found: dict[FigureKey, Value] = {}
    seen: Counter[tuple[tuple[str, str], ...]] = Counter()
    for row in rows:
        of = tuple(
            (name, _word(value))
            for name, value in row.items()
            if name in setting and value is not None
        )
        seen[of] += 1
        if seen[of] > 1:
            of = (*of, ("row", str(seen[of])))
        rest = {name: value for name, value in row.items() if name not in setting}
        for name, value in _values(rest, in_lists):
            found[FigureKey(table, of, name)] = _at_95(value, row.get("level", level))
    return found


def flat(inputs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as one, with dotted names; lists stay as they are."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _word(value: Any) -> str:
    """512 and 512.0 are one setting."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _values(
    row: Mapping[str, Any], in_lists: bool, prefix: str = ""
) -> Iterator[tuple[str, Value]]:
    for name, value in row.items():
        if name in _NOT_COMPARED or _is_end(name):
            continue
        low, high = _ends(row, name)
        yield from _value(prefix + name, value, low, high, in_lists)


def _value(
    name: str, value: Any, low: Any, high: Any, in_lists: bool
) -> Iterator[tuple[str, Value]]:
    """One entry; objects and lists are taken apart."""
    if isinstance(value, Mapping):
        yield from _values(value, in_lists, f"{name}.")
    elif isinstance(value, list) and in_lists and _is_interval(value):
        yield name, Interval(*map(_number, value))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            first, last = (each[place] if _as_long(each, value) else None for each in (low, high))
            yield from _value(f"{name} {place + 1}", item, first, last, in_lists)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, Interval(_number(low), _number(value), _number(high))
    else:
        yield name, value


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word in ("True", "False")
    return True


def _is_end(name: str) -> bool:
    return name in ("low", "high") or name.endswith(("_low", "_high"))


def _ends(row: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """What a row says of the interval of one of its figures."""
    if name in _CHOSEN:
        return None, None
    for low, high in ((f"{name}_low", f"{name}_high"), _ENDS.get(name, ("", ""))):
        if low in row:
            return row[low], row.get(high)
    return None, None


def _is_interval(value: Sequence[Any]) -> bool:
    if len(value) != 3 or not all(isinstance(each, (int, float, type(None))) for each in value):
        return False
    low, best, high = value
    if low is None and high is None:
        return best is not None
    return None not in value and low <= best <= high


def _as_long(ends: Any, value: Sequence[Any]) -> bool:
    return isinstance(ends, list) and len(ends) == len(value)


def _number(value: Any) -> float:
    """nan where it is none; JSON may have whole numbers that no float64 reaches."""
    try:
        return float(value) if isinstance(value, (int, float)) else nan
    except OverflowError:
        return inf if value > 0 else -inf


def _at_95(value: Value, level: Any) -> Value:
    """An interval of another level, as wide as one of 95 % would be."""
    if not isinstance(value, Interval) or not isinstance(level, float) or level == _LEVEL:
        return value
    best, narrow = value.best, normal_quantile(level)
    if narrow == 0:  # of a level that is almost none, which says nothing
        return Interval(nan, best, nan)
    wider = normal_quantile(_LEVEL) / narrow
    return Interval(best - wider * (best - value.low), best, best + wider * (value.high - best))
