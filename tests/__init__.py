"""Tests; what several of them need is in ``tests.support``, by subject."""

import pytest

# What a failed assertion compared is shown there, too.
pytest.register_assert_rewrite("tests.support")
