"""Colours as people see them: how far two are apart, and what people with colour blindness see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Machado, Oliveira and Fernandes (2009), "A physiologically-based model for simulation of color
# vision deficiency", severity 1.0: of linear RGB.
VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# IEC 61966-2-1 (sRGB): XYZ of linear RGB; its white is the sum of each row.
_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
)


def linear(colour: str) -> Vector:
    """RGB in proportion to light, of ``#rrggbb``."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(light: Vector) -> Vector:
    """CIELAB (1976) of linear RGB."""
    share = _XYZ @ np.clip(light, 0.0, 1.0) / _XYZ.sum(axis=1)
    x, y, z = np.where(share > (6 / 29) ** 3, np.cbrt(share), share * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def seen_apart(one: str, other: str) -> dict[str, float]:
    """By vision, the CIEDE2000 difference of two colours."""
    return {
        name: ciede2000(lab(matrix @ linear(one)), lab(matrix @ linear(other)))
        for name, matrix in VISIONS.items()
    }


def ciede2000(one: Sequence[float] | Vector, other: Sequence[float] | Vector) -> float:
    """The difference of two colours in CIELAB, by the symbols and equations of Sharma, Wu and Dalal
    (2005), "The CIEDE2000 color-difference formula".
    """
    (l1, a1, b1), (l2, a2, b2) = map(float, one), map(float, other)
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7))) / 2
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    # The shorter way around, and its middle; a grey has no hue.
    around = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    h = (h1 + around / 2) % 360 if c1 * c2 else h1 + h2
    big_h = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(around / 2))
    c, off = (c1 + c2) / 2, ((l1 + l2) / 2 - 50) ** 2
    t = (
        1
        - 0.17 * np.cos(np.radians(h - 30))
        + 0.24 * np.cos(np.radians(2 * h))
        + 0.32 * np.cos(np.radians(3 * h + 6))
        - 0.20 * np.cos(np.radians(4 * h - 63))
    )
    turn = np.radians(60 * np.exp(-(((h - 275) / 25) ** 2)))
    r = -2 * np.sqrt(c**7 / (c**7 + 25.0**7)) * np.sin(turn)
    of_l = (l2 - l1) / (1 + 0.015 * off / np.sqrt(20 + off))
    of_c, of_h = (c2 - c1) / (1 + 0.045 * c), big_h / (1 + 0.015 * c * t)
    return float(np.sqrt(of_l**2 + of_c**2 + of_h**2 + r * of_c * of_h))
