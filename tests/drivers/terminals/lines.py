"""A game of lines for tests: counts, dies, floods, hangs, leaves helpers, and asks for single keys, as it is told."""

import os
import random
import signal
import subprocess
import sys
import time

seed = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 0
count = random.Random(seed).randrange(100)
print(f"A counter stands at {count}.")
while True:
    try:
        line = input("> ")
    except EOFError:
        break
    if line == "up":
        count += 1
        print(f"The counter stands at {count}.")
    elif line == "raise":
        raise RuntimeError("the counter is jammed")
    elif line == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif line == "leave":
        print("Goodbye.")
        sys.exit(3)
    elif line == "slow":
        for one in "This is said letter by letter.\n":
            sys.stdout.write(one)
            sys.stdout.flush()
            time.sleep(0.02)
    elif line == "hang":
        while True:
            pass
    elif line == "flood":
        for _ in range(40_000):
            print("x" * 70)
        print("The flood is over.")
    elif line == "long":
        print(" ".join(f"word{number}" for number in range(40)))
    elif line == "hostile":
        sys.stdout.write("\x1b[?1;2x\x1b]0;title\x07\x1b[999999999;9L\x1b[5n\xff\x00</script>\x1b[31mred\x1b[0m\n")
    elif line == "helper":
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("A helper waits.")
    elif line == "where":
        print(f"cwd={os.getcwd()} home={os.environ['HOME']} term={os.environ['TERM']} tty={os.isatty(2)}")
        print(f"ctty={os.path.realpath('/dev/tty') is not None and bool(os.open('/dev/tty', os.O_RDWR))}")
    else:
        print(f"I do not know {line!r}.")
