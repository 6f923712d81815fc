"""Numbers of findings as a page writes them: a bound from below is cut off, and never stands above what was found.

number(0.37796, down=True)      "0.377"
least(1.00231, 1.0)             "1.002": the digits that make it more than the claim
"""

import math

DIGITS = 3
MOST_DIGITS = 17  # that a double has


def number(value: float, up: bool = False, down: bool = False, beside: float | None = None) -> str:
    """A number as a reader takes it: three digits that count, rounded as is asked; whole numbers whole.

    Args:
        beside: a number that it is compared with: as many more digits as tell the two apart.
    """
    for digits in range(DIGITS, MOST_DIGITS):
        text = _cut(value, up, down, digits)
        if beside is None or value == beside or float(text.replace(",", "")) != beside:
            break
    return text


def _cut(value: float, up: bool, down: bool, digits: int) -> str:
    if value == int(value) and abs(value) < 10**15:
        return f"{int(value):,}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    cut = math.ceil if up else math.floor if down else round
    slack = 1e-9 * (down - up)  # what is a multiple already stays one
    return f"{cut(value / unit + slack) * unit:.{digits}g}".replace("e-0", "e-")


def least(found: float, claimed: float | None = None) -> str:
    """A bound from below, cut off; of one above the claim, with as many digits as show that."""
    for digits in range(DIGITS, MOST_DIGITS):
        words = _cut(found, False, True, digits)
        if claimed is None or found <= claimed or claimed < float(words.replace(",", "")) <= found:
            return words
    return repr(found)
