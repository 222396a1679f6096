"""A game whose lines are read by a line editor, which takes them key by key."""

import readline  # noqa: F401 - importing it is what makes input() edit

print("Welcome.")
while (line := input("> ")) != "bye":
    print(f"You said {line}.")
