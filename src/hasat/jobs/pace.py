"""How fast work goes, once that can be said."""

# The first answers come in a burst, and what was done before a start is taken over at once.
_FOUNDED_SECONDS = 10.0


def per_second(done: float, seconds: float) -> float | None:
    """The pace so far; None as long as it would be no more than a guess."""
    return done / seconds if done > 0 and seconds >= _FOUNDED_SECONDS else None
