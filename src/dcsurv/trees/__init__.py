"""Trees of relative hazards: rows of patients and blocks of time, how trees grow on them, trees as plain arrays."""

from dcsurv.trees.arrays import Trees
from dcsurv.trees.blocks import BlockHazard, BlockRows, TimeBlocks
from dcsurv.trees.growing import LARGEST_LOG, Growth, boosted, forested

__all__ = ["LARGEST_LOG", "BlockHazard", "BlockRows", "Growth", "TimeBlocks", "Trees", "boosted", "forested"]
