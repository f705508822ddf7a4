"""Are counts what chance with known shares gives?"""

import numpy as np

# Values that chi-square exceeds once in a million, by degrees of freedom.
CRITICAL = {8: 42.70, 15: 56.49, 80: 155.08}


def check_shares(counts, shares) -> None:
    """Pearson's statistic of the counts under the shares stays below the critical value."""
    counts, shares = np.asarray(counts, np.float64), np.asarray(shares, np.float64)
    expected = counts.sum() * shares / shares.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < CRITICAL[len(counts) - 1], statistic
