"""Settings by number against all of them written out."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError
from specsim.sweeps.definition import SweepDefinition
from specsim.sweeps.values import Spaced, Stepped, Values, word
from tests.support.refusals import refuses

NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True)


def every(values: Values) -> list[object]:
    return [values[index] for index in range(len(values))]


@given(NAMES, st.data())
def test_a_setting_is_made_from_its_number(names: list[str], data: st.DataObject) -> None:
    """Against ``itertools.product`` over all values, the last input fastest, the case slowest."""
    inputs = {
        name: tuple(data.draw(st.lists(st.integers(-5, 5), min_size=1, max_size=4)))
        for name in names
    }
    count = data.draw(st.integers(1, 3))
    cases = tuple({"case": number, "other": -number} for number in range(count))
    definition = SweepDefinition("evaluate", inputs, cases)
    written_out = [
        {**case, **dict(zip(inputs, values, strict=True))}
        for case in cases
        for values in product(*inputs.values())
    ]
    assert [definition.setting(index) for index in range(definition.size)] == written_out
    assert definition.names == ("case", "other", *names)
    with pytest.raises(IndexError):
        definition.setting(definition.size)


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 40), st.integers(0, 4))
def test_steps_are_decimals(first: int, span: int, step: int, places: int) -> None:
    """Against exact fractions of whole numbers of 10^-places."""
    unit = Fraction(1, 10**places)
    at = [float(each * unit) for each in (first, first + span, step)]
    written_out = [float(each * unit) for each in range(first, first + span + 1, step)]
    assert every(Stepped(*at)) == written_out


def test_whole_numbers_stay_whole() -> None:
    assert every(Stepped(1, 5, 2)) == [1, 3, 5]
    assert all(isinstance(each, int) for each in every(Stepped(1, 5, 2)))
    assert every(Stepped(0.1, 0.4, 0.1)) == [0.1, 0.2, 0.3, 0.4]


@given(st.floats(1e-6, 1e3), st.floats(1.001, 1e6), st.integers(2, 30))
def test_spaced_values_have_one_ratio_or_one_difference(
    first: float, factor: float, count: int
) -> None:
    last = first * factor
    line, curve = every(Spaced(first, last, count)), every(Spaced(first, last, count, log=True))
    for found in (line, curve):
        assert len(found) == count
        assert found[0] == pytest.approx(first, rel=1e-11)
        assert found[-1] == last
    assert line == pytest.approx(
        [first + (last - first) * index / (count - 1) for index in range(count)], rel=1e-11
    )
    ratio = factor ** (1 / (count - 1))
    assert curve == pytest.approx([first * ratio**index for index in range(count)], rel=1e-9)


def test_a_million_settings_are_none_until_they_are_asked_for() -> None:
    definition = SweepDefinition("simulate", {"alpha": (0.1, 0.2), "seed": Stepped(0, 499_999)})
    assert definition.size == 1_000_000
    assert definition.setting(999_999) == {"alpha": 0.2, "seed": 499_999}
    assert definition.described()["inputs"]["seed"] == {"first": 0, "last": 499_999, "step": 1}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_typed_in_full(value: float) -> None:
    assert float(word(value)) == value
    assert Decimal(word(value)) == Decimal(repr(value))


def test_several_words_have_commas() -> None:
    assert word((0.8, 0.7, "x")) == "0.8,0.7,x"


def test_files_that_decide_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.txt", "c.json"):
        Path(name).write_text(name)
    inputs = {"workload": ("a.csv",), "prompt": (512, "file:b.txt")}
    definition = SweepDefinition("serve", inputs, ({"profile": "c.json"}, {"profile": "d.json"}))
    before = definition.files()
    assert list(before) == ["a.csv", "b.txt", "c.json"]
    Path("b.txt").write_text("other")
    assert [name for name, digest in definition.files().items() if before[name] != digest] == [
        "b.txt"
    ]


def test_so_are_those_in_folders_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models have a config.json, kernels three tables."""
    monkeypatch.chdir(tmp_path)
    for folder, name in (("model", "config.json"), ("tables", "dense.csv"), ("tables", "log.txt")):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, name).write_text(name)
    inputs = {"target": ("./model",), "step-cost": ("kernels:tables,layers=32",)}
    assert list(SweepDefinition("serve", inputs).files()) == [
        "model/config.json",
        "tables/dense.csv",
    ]


test_what_is_no_sweep_is_refused = refuses(
    (lambda: Stepped(1, 0), "last must be >= 1, got 0"),
    (lambda: Stepped(0, 1, 0), "step must be large enough"),
    (lambda: Stepped(0, 1e12), "step must be large enough"),
    (lambda: Spaced(0, 1, 1), "count must be a whole number"),
    (lambda: Spaced(0, 1, 5, log=True), "first must be above 0 with spacing log, got 0"),
    (lambda: SweepDefinition("evaluate", {"c": ()}), "inputs.c is empty"),
    (lambda: SweepDefinition("evaluate", {}, ()), "cases is empty"),
    (
        lambda: SweepDefinition("evaluate", {"c": (1,)}, ({"c": 2},)),
        "c is in inputs and in cases",
    ),
    (
        lambda: SweepDefinition("evaluate", dict.fromkeys("abcd", Stepped(1, 1000))),
        "at most 1,000,000,000 settings, got 1,000,000,000,000",
    ),
    error=InvalidArgumentError,
)
