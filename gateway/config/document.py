"""YAML as configuration: the 1.2 core schema, duplicate keys refused, and the line of every value kept.

PyYAML reads YAML 1.1, where `no` is false, `010` is eight and `2024-01-01` a date. Here only `true` and `false` are
booleans, integers and floats are decimal (YAML 1.2.2, 10.3), and everything else is a string: `region: no` is Norway.
`${NAME}` and `${NAME:-default}` are expanded after parsing and inside scalars only, so an environment value can never
add structure. `file:PATH` in a scalar takes a mounted secret's content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Path_ = tuple[str | int, ...]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INT = re.compile(r"^[-+]?[0-9]+$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_MAX_DEPTH = 64
_MAX_NODES = 500_000
#: What PyYAML itself resolves; any other tag was written by hand.
_TAGS = frozenset({"str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: where, which key, what, and what to do."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


@dataclass(slots=True)
class Document:
    """A parsed file: plain values, and the line (from 1) of every key and item by its path."""

    file: str
    value: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path_) -> int | None:
        """The line of a value, or of the nearest one that contains it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(self, path: Path_, message: str) -> None:
        self.problems.append(Problem(self.file, self.line_of(path), dotted(path), message))


def dotted(path: Path_) -> str:
    """`tenants[0].allow.models` for ("tenants", 0, "allow", "models")."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def read(file: Path, environment: Mapping[str, str]) -> Document:
    """Reads a file; whatever is wrong with it is in `problems`, never an exception."""
    document = Document(str(file))
    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        document.problems.append(Problem(str(file), None, "", f"cannot be read: {error.strerror or error}"))
        return document
    except UnicodeDecodeError:
        document.problems.append(Problem(str(file), None, "", "is not UTF-8"))
        return document
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        document.problems.append(
            Problem(str(file), mark.line + 1 if mark else None, "", f"is not YAML: {error.problem or error}")
        )
        return document
    except (yaml.YAMLError, RecursionError) as error:
        document.problems.append(Problem(str(file), None, "", f"is not YAML: {type(error).__name__}"))
        return document
    if root is None:
        document.problems.append(Problem(str(file), None, "", "is empty"))
        return document
    document.value = _Builder(document, environment, file.parent).build(root, ())
    return document


class _Builder:
    """Turns YAML nodes into values. Aliases are followed, within a bound on how much they may expand to."""

    def __init__(self, document: Document, environment: Mapping[str, str], folder: Path) -> None:
        self._document = document
        self._environment = environment
        self._folder = folder
        self._left = _MAX_NODES

    def build(self, node: yaml.Node, path: Path_) -> Any:
        self._document.lines[path] = node.start_mark.line + 1
        self._left -= 1
        if len(path) > _MAX_DEPTH or self._left < 0:
            if self._left >= -1:
                self._document.problem(path, "is nested too deep, or aliases expand to too much")
            return None
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
            self._document.problem(path, f"has a tag ({node.tag}) that is not supported")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: yaml.Node, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.problem(path, "has a key that is not plain text")
                continue
            key = key_node.value
            here = (*path, key)
            if key == "<<" and key_node.style is None:
                self._document.problem(here, "merge keys are not supported; write the keys out")
                continue
            if key in result:
                self._document.lines[here] = key_node.start_mark.line + 1
                self._document.problem(here, "is given twice")
                continue
            result[key] = self.build(value_node, here)
            self._document.lines[here] = key_node.start_mark.line + 1
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> Any:
        plain = node.style is None
        text = node.value
        expanded = self._expand(text, path)
        if expanded is None:
            return None
        if plain and expanded == text:
            return _core_schema(text)
        if plain and _VARIABLE.fullmatch(text):
            # `port: ${PORT}` is a number; anything longer may be a secret of digits and stays the text it is.
            return _core_schema(expanded) if len(expanded) <= 9 else expanded
        return expanded

    def _expand(self, text: str, path: Path_) -> str | None:
        missing: list[str] = []

        def replace(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            value = self._environment.get(name)
            if value is None or (value == "" and default is not None):
                if default is None:
                    missing.append(name)
                    return ""
                return default
            return value

        expanded = _VARIABLE.sub(replace, text) if "${" in text else text
        if missing:
            self._document.problem(path, f"the environment variable {missing[0]} is not set")
            return None
        if expanded.startswith("file:"):
            return self._mounted(expanded.removeprefix("file:"), path)
        return expanded

    def _mounted(self, name: str, path: Path_) -> str | None:
        try:
            content = (self._folder / name).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            self._document.problem(path, "the file it names cannot be read")
            return None
        if not content:
            self._document.problem(path, "the file it names is empty")
            return None
        return content


def _core_schema(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema, without octal and hexadecimal integers."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INT.match(text) and (text.lstrip("+-") == "0" or not text.lstrip("+-").startswith("0")):
        return int(text)
    if _FLOAT.match(text) and not _INT.match(text):
        return float(text)
    return text
