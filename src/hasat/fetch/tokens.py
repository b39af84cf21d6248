"""A small allowance that regular work earns: for retries, and for second tries."""


class Allowance:
    """Each request earns a share of a token, each extra one spends a whole one.

    So extra requests stay a share of all, and an outage cannot multiply the load.
    """

    def __init__(self, share: float, *, most: float, saved: float = 0.0) -> None:
        self.share = share
        self._most = most
        self._saved = min(saved, most)

    @property
    def saved(self) -> float:
        """How many tokens are there."""
        return self._saved

    def earn(self) -> None:
        self._saved = min(self._most, self._saved + self.share)

    def spend(self) -> bool:
        """Take a token, if a whole one is there."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True

    def give_back(self) -> None:
        """Return a token that bought nothing."""
        self._saved = min(self._most, self._saved + 1.0)
