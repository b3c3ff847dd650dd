"""Keywords as a verb's words: what the command's parser reads."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _core
from ._documents import Result

UNITS = {"TIME": "s", "SIZE": "B", "RATE": "B/s"}  # of numbers: SI


@functools.cache
def options_of(verb: str) -> dict[str, _core.Option]:
    """By keyword, the options of a verb's parser."""
    return {keyword_of(option.name): option for option in _core.options(verb)}


def keyword_of(name: str) -> str:
    """--step-time is step_time; --from, a word of Python, is from_."""
    return "from_" if name == "from" else name.replace("-", "_")


class Words:
    """What is typed after the verb, and the documents that some of these words stand for."""

    def __init__(self, verb: str, keywords: dict[str, Any]) -> None:
        self.words: list[str] = []
        self.documents: dict[str, Any] = {}
        positional: list[str] = []
        for keyword, option in options_of(verb).items():
            value = keywords.get(keyword)
            if value is None or (value is False and option.type == ""):
                continue
            if option.positional:
                positional += [self._text(item, option, keyword) for item in _items(value)]
            else:
                self._add(keyword, option, value)
        self.words += ["--", *positional] if positional else []

    def _add(self, keyword: str, option: _core.Option, value: Any) -> None:
        name = "--" + option.name
        if value is True:  # a flag, or an option that may come without a value
            self.words.append(name)
            return
        texts = [self._text(item, option, keyword) for item in _items(value)]
        if not texts and not option.repeated:
            raise _core.UsageError(
                f"{keyword}=: expected a value or more, found none; None is the default")
        for text in texts if option.repeated else [",".join(texts)]:
            self.words.append(f"{name}={text}")

    def _text(self, value: Any, option: _core.Option, keyword: str) -> str:
        if isinstance(value, Result):
            name = f"<{keyword} {len(self.documents) + 1}>" if self.documents else f"<{keyword}>"
            self.documents[name] = value._held
            return name
        if isinstance(value, (str, os.PathLike)):
            text = os.fspath(value)
            if not text.strip():  # the parser would take the next word for the value
                raise _core.UsageError(f"{keyword}=: expected text, found {text!r}"
                                       + ("" if option.required else "; None is the default"))
            return text
        if isinstance(value, bool) or not _is_number(value):
            raise TypeError(f"{keyword}: expected text or a number, found {value!r}")
        unit = UNITS.get(option.type, "")
        number = float(value)
        return (
            f"{int(number) if number.is_integer() and abs(number) < 1e15 else repr(number)}{unit}")


def _items(value: Any) -> Iterable[Any]:
    """A document that is a sequence, too, is one value."""
    if isinstance(value, (str, os.PathLike, Result)) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def _is_number(value: Any) -> bool:
    """Python's numbers and those of numpy and others, none of which is imported here."""
    return hasattr(value, "__float__") and not isinstance(value, complex)


def call(verb: str, keywords: dict[str, Any], progress: bool | Callable[[str], object] | None,
         function: Callable[..., Any]) -> Any:
    """function(words, documents, progress) with the keywords as words."""
    words = Words(verb, keywords)
    if progress is not True:
        return function(words.words, words.documents, progress or None)
    line = ProgressLine()
    try:
        return function(words.words, words.documents, line.show)
    finally:
        line.clear()


class ProgressLine:
    """One line on stderr, written over."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, text: str) -> None:
        sys.stderr.write("\r\033[K" + text)
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def with_options(verb: str) -> Callable[[Any], Any]:
    """Adds what the parser says of the verb's options to a function's docstring: the text of
    `linerate VERB --help`."""

    def add(function: Any) -> Any:
        lines = [
            f"    {keyword}: {option.says}"
            + (" (a number: " + UNITS[option.type] + ")" if option.type in UNITS else "")
            for keyword, option in options_of(verb).items()
        ]
        function.__doc__ = ((function.__doc__ or "") + "\n\nOptions, as of `linerate " + verb
                            + "`:\n\n" + "\n".join(lines) + "\n")
        return function

    return add
