"""Decoding schemes at settings that can be run for real and predicted from recorded text."""

from __future__ import annotations

from calibrate.schemes.base import ModelPool, ModelSet, Setting, Source

__all__ = ["ModelPool", "ModelSet", "Setting", "Source"]
