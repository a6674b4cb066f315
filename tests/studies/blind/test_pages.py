"""What the pages say of the committed blind checks is what the tables hold."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from benchmarks.blind_judged import losses_with_plain, recommended_losses
from tests.support.blind_batteries import AGAIN, BLIND, LAST, ONE_ESTIMATOR, together_said


def test_docs_say_what_a_calibration_has_to_cost() -> None:
    """Every row of the table is of the files."""
    page = (BLIND.parents[2] / "docs" / "sure.md").read_text()
    several = [
        pd.read_csv(BLIND / folder / "knee.csv").set_index(["requests", "repeats"])
        for folder in ("quiet-blocks", LAST, AGAIN)
    ]
    for requests, repeats in several[0].index:
        cells = [requests, repeats]
        for knee in several:
            row = knee.loc[(requests, repeats)]
            cells += [f"{row['seconds']:.0f}", f"{row['median']:.1%}", f"{row['worst']:.1%}"]
        assert f"| {' | '.join(str(each).rstrip('%') for each in cells)} |\n" in page


def test_docs_say_what_the_batteries_of_one_estimator_came_to() -> None:
    """Every row of the table is of the files."""
    page = (BLIND.parents[2] / "docs" / "sure.md").read_text()
    rows = re.findall(r"^\| (`[a-z-]+/`|all [a-z]+) \|(.*)\|$", page, re.MULTILINE)
    assert [name.strip("`/") for name, _ in rows[:-1]] == [*ONE_ESTIMATOR]
    for name, row in rows:
        said = together_said(ONE_ESTIMATOR if name[0] == "a" else (name.strip("`/"),))
        errors = f"{said['median']:.1%}|{said['worst']:.1%}|{said['mean']:+.1%}"
        shares = f"{said['inside']:.1%}|{said['within_2_percent_of_best']:.0%}"
        promised = f"{said['chosen_mean']:+.1%}({100 * said['chosen_mean_error']:.1f})"
        expected = f"{errors}|{shares}|{promised}".replace("100.0%", "100%")
        assert row.replace(" ", "") == expected, name


def test_recommendations_of_plain_decoding_count_as_the_page_says() -> None:
    """Of all sixteen batteries: by what was measured, and by halves of the passes."""
    page = (BLIND / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)/` \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 16
    for folder, row in rows:
        cells = pd.read_csv(BLIND / folder / "cells.csv")
        every = losses_with_plain(cells), recommended_losses(BLIND / folder, cells, plain=True)
        first, *halves = [f"{np.mean(np.array(each) <= 0.02):.0%}" for each in every if each]
        words = " ".join([first, *(f"({each})" for each in halves)])
        assert row.split("|")[6].strip() == words.replace("%", " %")
        assert all(len(each) == 18 for each in every if each)
