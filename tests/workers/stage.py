"""Runs a real supervisor over a small player program: `stage.py JOB SHA256 PLAYER [SECRETS-JSON on stdin]`.

The player is an argument of `supervise`; the shipped command always passes the real one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workers.jobs import read_job
from workers.supervisor import AlreadyBegunError, supervise


def main() -> int:
    job_path, sha256, player = sys.argv[1:4]
    job = read_job(Path(job_path), sha256)
    secrets = json.loads(sys.stdin.read() or "{}")
    try:
        supervise(job, sha256, player=[sys.executable, "-P", player], secrets=secrets)
    except AlreadyBegunError as error:
        sys.stderr.write(f"{error}\n")
        return 73
    return 0


if __name__ == "__main__":
    sys.exit(main())
