"""Quantiles by nearest rank."""

from __future__ import annotations

import math
from collections.abc import Iterable


def quantile(values: Iterable[float], share: float) -> float:
    """The least value that at least this share of the values does not exceed.

    Args:
        values: at least one, in any order.
        share: from 0 to 1.
    """
    ordered = sorted(values)
    # Rounded, because 0.07 * 100 is a little more than 7.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]
