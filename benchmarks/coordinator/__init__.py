"""The coordinator's speed, as ratios to bare loops, to a bare interpreter and to peers, measured in one run."""
