"""The shipped worker entry over a small player program: `launched.py PLAYER --job ... `."""

from __future__ import annotations

import sys

import workers.main

if __name__ == "__main__":
    player = sys.argv[1]
    workers.main.player_command = lambda: [sys.executable, "-P", player]
    sys.exit(workers.main.main(sys.argv[2:]))
