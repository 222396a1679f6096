"""A game of single keys on a drawn screen, for tests: a marker that moves."""

import curses


def main(screen: "curses.window") -> None:
    curses.use_default_colors()
    column = 10
    while True:
        screen.erase()
        screen.addstr(0, 0, "Keys: h left, l right, q: quit")
        screen.addstr(5, column, "@")
        screen.refresh()
        key = screen.getkey()
        column += {"h": -1, "l": 1, "KEY_RIGHT": 5}.get(key, 0)
        if key == "q":
            return


curses.wrapper(main)
