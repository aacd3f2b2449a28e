"""Measured numbers made into a model of step time, with intervals from what was held out."""

from advisor.roofline.calibration.ladder import (
    ImpliedShares,
    StepCalibration,
    cache_read_share,
    implied_shares,
)

__all__ = ["ImpliedShares", "StepCalibration", "cache_read_share", "implied_shares"]
