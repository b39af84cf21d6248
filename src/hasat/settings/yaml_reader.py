"""Read YAML with line numbers, within limits on size, depth and number of values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hasat.messages import msg
from hasat.settings.values import Findings

_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAX_BYTES = 1 << 20
_MAX_VALUES = 50_000
_MAX_DIGITS = 300
_MERGE = "<<"
_TAG = "tag:yaml.org,2002:"

Part: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Item:
    """A value of a file: a mapping or list of items, or the text of a scalar."""

    content: "dict[str, Item] | list[Item] | str"
    line: int
    quoted: bool = False

    @property
    def unset(self) -> bool:
        """Return whether the value is empty, null or an empty text."""
        if not isinstance(self.content, str):
            return False
        return self.content == "" or (not self.quoted and _WORDS.get(self.content, "") is None)

    def value(self) -> Any:
        """Return the value with the types of YAML."""
        if isinstance(self.content, dict):
            return {key: item.value() for key, item in self.content.items()}
        if isinstance(self.content, list):
            return [item.value() for item in self.content]
        if self.quoted:
            return self.content
        if self.content in _WORDS:
            return _WORDS[self.content]
        if _INTEGER.fullmatch(self.content) and len(self.content) <= _MAX_DIGITS:
            return int(self.content)
        return float(self.content) if _NUMBER.fullmatch(self.content) else self.content

    def texts(self) -> Any:
        """Return the value with every scalar as text, without unset parts of mappings."""
        if isinstance(self.content, dict):
            return {k: item.texts() for k, item in self.content.items() if not item.unset}
        if isinstance(self.content, list):
            return [item.texts() for item in self.content]
        return self.content

    def lines(self, part: Part = ()) -> Iterator[tuple[Part, int]]:
        """Return the line of each part."""
        if part:
            yield part, self.line
        if isinstance(self.content, dict):
            for key, item in self.content.items():
                yield from item.lines((*part, key))
        elif isinstance(self.content, list):
            for index, item in enumerate(self.content):
                yield from item.lines((*part, index))


def read_yaml(path: Path, name: str, found: Findings) -> Item | None:
    """Return the content of a file; None, with a reported problem, if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            found.problems.append(
                msg("{name} is larger than {size} MB.", name=name, size=_MAX_BYTES >> 20)
            )
            return None
        text = content.decode("utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _Reader(name, found).item(node)
    except OSError as error:
        found.problems.append(
            msg("{name} cannot be read ({strerror}).", name=name, strerror=error.strerror)
        )
    except UnicodeDecodeError as error:
        found.problems.append(
            msg("{name} is not UTF-8 text (byte {start}).", name=name, start=error.start)
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        found.problems.append(
            msg(
                "{place}: this is not YAML: {problem}.",
                place=place,
                problem=error.problem or error.context,
            )
        )
    except yaml.YAMLError as error:
        found.problems.append(
            msg(
                "{place}: this is not YAML: {problem}.",
                place=name,
                problem=" ".join(str(error).split()),
            )
        )
    except _TooManyError:
        found.problems.append(
            msg(
                "{name} has more than {max_values:,} values, counting those that aliases repeat.",
                name=name,
                max_values=_MAX_VALUES,
            )
        )
    except RecursionError:
        found.problems.append(msg("{name} is nested too deeply or contains itself.", name=name))
    return None


class _TooManyError(Exception):
    """A short file with aliases of aliases may stand for billions of values."""


class _Reader:
    def __init__(self, name: str, found: Findings) -> None:
        self._name, self._found = name, found
        self._values = 0

    def item(self, node: Node) -> Item:
        self._count()
        line = node.start_mark.line + 1
        if not node.tag.startswith(_TAG) or "python" in node.tag:
            self._problem(line, msg("the tag {tag} has no meaning here.", tag=node.tag))
        if isinstance(node, MappingNode):
            return Item(self._mapping(node), line)
        if isinstance(node, SequenceNode):
            return Item([self.item(child) for child in node.value], line)
        assert isinstance(node, ScalarNode)
        return Item(node.value, line, quoted=node.style is not None)

    def _count(self) -> None:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _TooManyError

    def _mapping(self, node: MappingNode) -> dict[str, Item]:
        self._count()
        found: dict[str, Item] = {}
        merged: dict[str, Item] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._problem(line, msg("a key must be a plain word."))
                continue
            key = key_node.value
            if key == _MERGE and key_node.style is None:
                sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                for source in sources:
                    if isinstance(source, MappingNode):
                        merged = {**self._mapping(source), **merged}
                continue
            if key in found:
                self._problem(line, msg("{key!r} stands here for the second time.", key=key))
            # The line of the key, even if its list starts below it.
            found[key] = replace(self.item(value_node), line=line)
        return {**merged, **found}

    def _problem(self, line: int, sentence: str) -> None:
        self._found.problems.append(
            msg("{name}:{line}: {sentence}", name=self._name, line=line, sentence=sentence)
        )
