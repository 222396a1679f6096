"""The smallest worker that delivers: moves what was prepared for it into the inbox, and notes when."""

import os
import sys
import time

job = sys.argv[sys.argv.index("--job") + 1]
control, name = os.path.dirname(os.path.dirname(job)), os.path.basename(job).removesuffix(".json")
sys.stdin.buffer.read()
os.rename(os.path.join(control, f"prepared-{name}"), os.path.join(control, "inbox", f"{name}.0123456789abcdef.json"))
appeared = time.time_ns()
with open(os.path.join(control, f"appeared-{name}"), "w", encoding="ascii") as file:
    file.write(str(appeared))
