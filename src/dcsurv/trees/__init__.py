"""Trees of relative hazards: rows of patients and blocks of time, how trees grow on them, trees as plain arrays."""

from dcsurv.trees.arrays import Trees
from dcsurv.trees.blocks import BlockHazard, BlockRows, TimeBlocks
from dcsurv.trees.growing import Boosting, Growth, bagged, boosted

__all__ = ["BlockHazard", "BlockRows", "Boosting", "Growth", "TimeBlocks", "Trees", "bagged", "boosted"]
