"""What is not held against each other in half precision."""

from __future__ import annotations

import msgspec
import pytest

from calibrate.validate.speedups import CheckedPrompts
from specsim.api.not_compared import not_compared
from specsim.optimizers.workload import Workload
from specsim.profiles import read_profile
from tests.support.profiles import EMBEDDED


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_texts_in_half_precision_need_not_be_the_same(dtype: str) -> None:
    profile = read_profile(EMBEDDED)
    software = msgspec.structs.replace(profile.software, dtype=dtype)
    other = msgspec.structs.replace(profile, software=software)
    workloads = Workload.all_of(other, EMBEDDED, None)
    certain = {
        each.measured.sampling.temperature: CheckedPrompts(each, True, []).certain
        for each in workloads
    }
    assert certain[0] == (dtype == "float32")
    assert not certain[1]
    said = not_compared(other, workloads)
    assert [dtype in each for each in said] == ([] if dtype == "float32" else [True])
    drawn = [each for each in workloads if each.measured.sampling.temperature]
    assert not not_compared(other, drawn)
