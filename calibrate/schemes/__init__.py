"""Decoding schemes at settings that can be run for real and predicted from recorded text."""

from __future__ import annotations

from calibrate.schemes.base import Parties, Party, Setting, Source

__all__ = ["Parties", "Party", "Setting", "Source"]
