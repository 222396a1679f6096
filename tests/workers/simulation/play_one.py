"""Plays one batch as a program of its own, so that a test can kill it: prints how many games are finished."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.workers.simulation.batches import play


def main() -> None:
    directory, game, config = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    play(directory, game, config, progress=lambda seen: print(seen.finished, flush=True))


if __name__ == "__main__":
    main()
