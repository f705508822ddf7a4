"""Running mean and variance, as they are known after each batch of a stream."""

from __future__ import annotations

import numpy as np

from ogspr.types import Float64Array

_STILL = 1e-8  # a variance below this is rounding: such a number has no scale of its own


class RunningMoments:
    """Mean and variance of every dimension over all that it was shown, without keeping it.

    Batches are merged as in Chan, Golub and LeVeque (1979): exact for any way of cutting up the stream, and
    sound where the mean is large beside the spread.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean: Float64Array = np.zeros(size)
        self._squares: Float64Array = np.zeros(size)  # summed squared distances from the mean

    @property
    def variance(self) -> Float64Array:
        """Of the numbers seen, dividing by their count; zero before the first."""
        return self._squares / max(self.count, 1)

    def add(self, batch: Float64Array) -> None:
        """(N, size)"""
        if not len(batch):
            return
        together = self.count + len(batch)
        batch_mean = batch.mean(0)
        offset = batch_mean - self.mean
        self._squares += ((batch - batch_mean) ** 2).sum(0) + offset**2 * self.count * len(batch) / together
        self.mean += offset * len(batch) / together
        self.count = together

    def normalised(self, values: Float64Array) -> Float64Array:
        """Centred, and in units of the standard deviation.

        A dimension that has not moved so far is only centred: divided by next to nothing, its first movement
        (a contact sensor's, say) would outweigh everything else.
        """
        variance = self.variance
        scale = np.sqrt(np.where(variance > _STILL, variance, 1.0))
        normalised: Float64Array = (values - self.mean) / scale
        return normalised
