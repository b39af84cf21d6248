"""Parse the text form of CQL2 into a condition of SQL.

Supported are the conformance classes Basic CQL2 and Advanced Comparison Operators: AND, OR, NOT,
comparisons, IS NULL, LIKE, BETWEEN and IN, over the queryables.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.filters.queryables import QUERYABLES, Kind, Queryable

MAX_LENGTH = 5_000
_MAX_DEPTH = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"[^"]+")
    |(?P<word>[^\W\d][\w.:]*)
    |(?P<sign><>|<=|>=|[=<>(),]))""",
    re.VERBOSE,
)
_COMPARISONS = ("=", "<>", "<=", ">=", "<", ">")
_KEYWORDS = frozenset(
    ("and", "or", "not", "is", "null", "like", "between", "in", "true", "false", "date")
) | {"timestamp"}
_KINDS: dict[Kind, str] = {
    "string": msg("a text in single quotes"),
    "number": msg("a number"),
    "integer": msg("a number"),
    "timestamp": msg("TIMESTAMP('2026-11-01T00:00:00Z') or DATE('2026-11-01')"),
}


@dataclass(frozen=True)
class Condition:
    """A condition over the aliases p and t of the queries, with its parameters."""

    sql: sql.Composable
    values: dict[str, Any]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int

    def says(self, *texts: str) -> bool:
        return self.kind in ("word", "sign") and self.text.lower() in texts


@dataclass(frozen=True)
class _Literal:
    value: Any
    kinds: tuple[Kind, ...]


def parse_filter(text: str) -> Condition:
    """Return the condition of a filter; raise UsageError with the place of a mistake."""
    if len(text) > MAX_LENGTH or "\0" in text:
        raise UsageError(msg("`filter` is longer than {limit} characters.", limit=MAX_LENGTH))
    return _Parser(_tokens(text)).condition()


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _mistake(at, msg("{text!r} is not CQL2", text=text[at : at + 20].strip()))
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _mistake(at: int, what: str) -> UsageError:
    return UsageError(
        msg("`filter` cannot be read at character {place}: {what}.", place=at + 1, what=what),
        remedy=msg("Write for example: adaNo = '101' AND alan > 500 AND nitelik LIKE '%Tarla%'."),
    )


class _Parser:
    """A recursive-descent parser; OR binds weaker than AND, AND weaker than NOT."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0
        self._values: dict[str, Any] = {}

    def condition(self) -> Condition:
        found = self._or()
        if self._next.kind != "end":
            raise self._unexpected()
        return Condition(found, self._values)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += 1
        return token

    def _skip(self, *texts: str) -> bool:
        if self._next.says(*texts):
            self._place += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._unexpected(text.upper())

    def _unexpected(self, wanted: str | None = None) -> UsageError:
        here = self._next
        found = msg("{text!r}", text=here.text) if here.kind != "end" else msg("the end")
        if wanted is None:
            return _mistake(here.at, msg("{found} is not expected here", found=found))
        return _mistake(here.at, msg("{wanted} is missing", wanted=wanted))

    def _or(self) -> sql.Composable:
        return self._joined("or", self._and)

    def _and(self) -> sql.Composable:
        return self._joined("and", self._not)

    def _joined(self, word: str, part: Callable[[], sql.Composable]) -> sql.Composable:
        parts = [part()]
        while self._skip(word):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        return sql.SQL("({})").format(sql.SQL(f" {word.upper()} ").join(parts))

    def _not(self) -> sql.Composable:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _mistake(self._next.at, msg("it is nested too deeply"))
        try:
            if self._skip("not"):
                return sql.SQL("NOT {}").format(self._not())
            if self._skip("("):
                inner = self._or()
                self._expect(")")
                return inner
            return self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> sql.Composable:
        queryable = self._queryable()
        value = queryable.value
        if self._skip("is"):
            negated = self._skip("not")
            self._expect("null")
            return sql.SQL("({} IS {}NULL)").format(value, sql.SQL("NOT " if negated else ""))
        negated = self._skip("not")
        if self._skip("like"):
            if queryable.kind != "string":
                raise _mistake(self._next.at, msg("LIKE needs a text property"))
            found = sql.SQL("({} LIKE {})").format(value, self._literal(queryable))
        elif self._skip("between"):
            least = self._literal(queryable)
            self._expect("and")
            found = sql.SQL("({} BETWEEN {} AND {})").format(value, least, self._literal(queryable))
        elif self._skip("in"):
            self._expect("(")
            listed = [self._literal(queryable)]
            while self._skip(","):
                listed.append(self._literal(queryable))
            self._expect(")")
            found = sql.SQL("({} IN ({}))").format(value, sql.SQL(", ").join(listed))
        elif negated or not self._next.says(*_COMPARISONS):
            raise self._unexpected()
        else:
            operator = self._take().text
            return sql.SQL(f"({{}} {operator} {{}})").format(value, self._literal(queryable))
        return sql.SQL("NOT {}").format(found) if negated else found

    def _queryable(self) -> Queryable:
        token = self._next
        name = token.text.strip('"') if token.kind == "quoted" else token.text
        is_name = token.kind == "quoted" or (
            token.kind == "word" and token.text.lower() not in _KEYWORDS
        )
        if not is_name:
            raise self._unexpected()
        if name not in QUERYABLES:
            raise _mistake(
                token.at,
                msg(
                    "there is no property {name!r}; there are {names}",
                    name=name,
                    names=", ".join(QUERYABLES),
                ),
            )
        self._place += 1
        return QUERYABLES[name]

    def _literal(self, queryable: Queryable) -> sql.Composable:
        at = self._next.at
        literal = self._value()
        if queryable.kind not in literal.kinds:
            raise _mistake(
                at,
                msg("{name} needs {kind}", name=queryable.name, kind=_KINDS[queryable.kind]),
            )
        name = f"filter{len(self._values)}"
        value = literal.value
        # An index of integers is not used for fractions.
        is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        self._values[name] = int(value) if is_whole else value
        return sql.Placeholder(name)

    def _value(self) -> _Literal:
        token = self._take()
        if token.kind == "string":
            return _Literal(token.text[1:-1].replace("''", "'"), ("string",))
        if token.kind == "number":
            return _Literal(float(token.text), ("number", "integer"))
        if token.says("timestamp", "date"):
            self._expect("(")
            text = self._take()
            moment = _moment(text.text[1:-1]) if text.kind == "string" else None
            if moment is None:
                raise _mistake(text.at, msg("{text!r} is not a time", text=text.text))
            self._expect(")")
            return _Literal(moment, ("timestamp",))
        self._place -= 1
        raise self._unexpected()


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
