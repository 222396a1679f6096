"""The game went on, but its console or error output shows an uncaught error."""

from __future__ import annotations

import re
from collections.abc import Iterable

from drivers.base import LogLine, Observation
from workers.findings import Event
from workers.oracles.base import StepFacts
from workers.oracles.crash import last_word, top_frame

_UNCAUGHT = re.compile(
    r"Traceback \(most recent call last\)|\b(?:Uncaught|Unhandled)\b|\bpanicked at\b|SCRIPT ERROR|Segmentation fault"
    r"|^\s*(?:[A-Za-z_][\w.]*)?(?:Error|Exception): ",
    re.MULTILINE,
)
_CONSOLES = ("console", "engine", "page")


class ConsoleErrors:
    """Fires on a traceback or uncaught error in the log (major), and on a console's own error level (minor).

    A line on standard error without either is noise: many games write their ordinary log there.
    """

    name = "console_error"

    def at_start(self, observation: Observation) -> Iterable[Event]:
        yield from self._judge(observation.log, "at the start")

    def at_step(self, facts: StepFacts) -> Iterable[Event]:
        if facts.after is not None:
            yield from self._judge(facts.after.log, f"on {facts.label!r}")

    def _judge(self, log: tuple[LogLine, ...], when: str) -> Iterable[Event]:
        text = "\n".join(line.text for line in log if line.level in ("error", "warning"))
        if _UNCAUGHT.search(text):
            word = last_word(text)
            yield Event(
                oracle=self.name,
                category="error",
                severity="major",
                title=f"An uncaught error {when}: {word}",
                description="The game went on, but its error output shows an error that nothing caught.",
                message=word,
                place=top_frame(text),
                console=tuple(text.splitlines()[-20:]),
            )
            return
        for line in log:
            if line.level == "error" and line.source in _CONSOLES:
                yield Event(
                    oracle=self.name,
                    category="error",
                    severity="minor",
                    title=f"An error message {when}: {line.text[:100]}",
                    description=f"Written {line.count} time(s) at level error by {line.source}.",
                    message=line.text,
                    console=(line.text,),
                )
