"""Print the tables: `python -m benchmarks.exploration [--shift N] [--quests N]`."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.exploration.recall import (
    ACTIONS,
    NOT_FOUND,
    ORACLES,
    QUESTS,
    SEEDS,
    cavern,
    found_per_seed,
    median,
    recall,
    run_all,
    sign_test,
    textworld,
)


def show_recall(shift: int) -> None:
    """Planted bugs of the example game: one row a bug, one column a seed."""
    arms = {brain: recall(brain, shift) for brain in ("offline", "random")}
    print(f"Actions until a planted bug is found, of {ACTIONS} (gates moved by {shift}; - not found)\n")
    print(f"{'bug':18}" + "".join(f"{f'{brain} seed {seed}':>16}" for brain in arms for seed in SEEDS))
    for bug in ORACLES:
        cells = [arms[brain][(bug, seed)] for brain in arms for seed in SEEDS]
        print(f"{bug:18}" + "".join(f"{'-' if cell == NOT_FOUND else cell:>16}" for cell in cells))
    for brain, found in arms.items():
        print(f"{brain}: found per seed {found_per_seed(found)} of {len(ORACLES)}, median actions {median(found):g}")
    won, lost, p = sign_test(list(arms["offline"].values()), list(arms["random"].values()))
    print(f"sign test over seeds x bugs: offline better {won}, worse {lost}, p = {p:.2g}")
    clean = [played.report for played in run_all([("offline", cavern(None), seed) for seed in SEEDS])]
    print(f"findings with all bugs switched off: {sum(len(report.findings) for report in clean)}\n")


def show_quests(number: int) -> None:
    """TextWorld: the mean share of the score, and findings that should not be there."""
    with tempfile.TemporaryDirectory() as name:
        settings = textworld(Path(name))
        means = {}
        for brain in ("offline", "random"):
            runs = run_all([(brain, settings, seed) for seed in QUESTS[:number]])
            serious = [f for r in runs for f in r.report.findings if f.severity in ("critical", "major")]
            means[brain] = statistics.fmean(r.best_progress for r in runs)
            print(f"TextWorld, {brain}: mean share of the score {means[brain]:.3f}, serious findings {len(serious)}")
        print(f"difference {means['offline'] - means['random']:+.3f} over {number} quests")


def main() -> None:
    """Read the options and print."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.exploration", description=__doc__)
    options.add_argument("--shift", type=int, default=0, help="move the gates of two planted bugs")
    options.add_argument("--quests", type=int, default=len(QUESTS), help="how many TextWorld games (0: none)")
    chosen = options.parse_args()
    show_recall(chosen.shift)
    if chosen.quests:
        show_quests(min(chosen.quests, len(QUESTS)))


if __name__ == "__main__":
    main()
