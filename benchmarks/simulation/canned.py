"""A bridge that does as little as a bridge can: fixed answers, and everything it has read answered in one write.

What is measured with it is the cost of the pipe and of this side of it. `python canned.py STEPS SESSIONS`.
"""

from __future__ import annotations

import os
import re
import sys

REQUEST = re.compile(rb'"id":(\d+),"method":"(\w+)","params":\{(?:"session":"(\w+)")?(?:,"seed":"(\d+)")?')
TURN = b'{"jsonrpc":"2.0","id":%d,"result":{"state":{"place":%d},"actions":[{"id":"a"},{"id":"b"}],"done":false%s}}\n'
LAST = b'{"jsonrpc":"2.0","id":%d,"result":{"state":{"place":%d},"outcome":"end","done":true}}\n'
HELLO = b'{"jsonrpc":"2.0","id":%d,"result":{"name":"canned","version":"1","protocol":1,"sessions":%d}}\n'


def main(steps: int, sessions: int) -> None:
    places: dict[bytes, int] = {}
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        answers = []
        for line in lines:
            match = REQUEST.search(line)
            assert match is not None, line
            number, method, session, seed = int(match[1]), match[2], match[3], match[4]
            if method == b"step":
                place = places[session] = places[session] + 1
                answers.append(TURN % (number, place, b"") if place < steps else LAST % (number, place))
            elif method == b"reset":
                places[session] = 0
                answers.append(TURN % (number, 0, b',"seed":"%s"' % seed))
            elif method == b"initialize":
                answers.append(HELLO % (number, sessions))
            else:
                answers.append(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % number)
        os.write(1, b"".join(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
