"""Words to row numbers of an embedding table, and back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxrec.data._arguments import check_integers, each_tree
from jaxrec.data._tree import Tree

UNKNOWN = "<unk>"
"""The word with id 0, which stands for every word a vocabulary does not hold."""

_FORMAT = "jaxrec.vocabulary"


@dataclass(frozen=True, init=False, slots=True)
class Vocabulary:
    """Words numbered from 1; 0 is the unknown word.

    Attributes:
        words: The words by id; `words[0]` is `UNKNOWN`.
        lower: Whether words are put in lower case before they are looked up.

    Example:
        >>> from jaxrec.data import Vocabulary
        >>> vocabulary = Vocabulary(["good", "film"])
        >>> len(vocabulary), vocabulary.encode("film"), vocabulary.encode("bad")
        (3, 2, 0)
        >>> vocabulary.decode(2)
        'film'
    """

    words: tuple[str, ...]
    lower: bool
    _ids: dict[str, int] = field(repr=False, compare=False)

    def __init__(self, words: Iterable[str], *, lower: bool = False) -> None:
        """Numbers the words in the order given.

        Args:
            words: The words, without repetitions; `UNKNOWN` among them is passed over.
            lower: Whether words are put in lower case, these and those looked up.

        Raises:
            ValueError: If a word comes twice.
            TypeError: If there is anything but words.
        """
        is_list = isinstance(words, Iterable) and not isinstance(words, str)
        given: list[Any] = list(words) if is_list else [words]
        wrong = [word for word in given if not isinstance(word, str)]
        if wrong or not is_list:
            raise TypeError(f"Vocabulary: got {(wrong or given)[0]!r}, expected a list of words")
        spelled = (word.lower() if lower else word for word in given)
        kept = [UNKNOWN, *(word for word in spelled if word != UNKNOWN)]
        ids = {word: number for number, word in enumerate(kept)}
        if len(ids) != len(kept):
            twice = [word for word, count in Counter(kept).items() if count > 1]
            raise ValueError(
                f"Vocabulary: got {len(twice)} words more than once, such as {twice[0]!r}; "
                "expected distinct words" + (" (after putting them in lower case)" * lower)
            )
        # A frozen dataclass with its own __init__ has no other way to set its fields.
        object.__setattr__(self, "words", tuple(kept))
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(cls, trees: Iterable[Tree], min_count: int = 1, lower: bool = False) -> Vocabulary:
        """The words of some trees, the most frequent first and ties in order of code points.

        Args:
            trees: The trees whose leaves are counted.
            min_count: Words seen fewer times are left out, hence unknown.
            lower: Whether upper and lower case are one.

        Raises:
            ValueError: If `min_count` is below 1.

        Example:
            >>> from jaxrec.data import Tree, Vocabulary
            >>> Vocabulary.build([Tree(2, children=(Tree(2, "a"), Tree(2, "b")))]).words
            ('<unk>', 'a', 'b')
        """
        check_integers("Vocabulary.build", min_count=min_count)
        if min_count < 1:
            raise ValueError(f"Vocabulary.build: got min_count={min_count}, expected 1 or more")
        words = (word for tree in each_tree("Vocabulary.build", trees) for word in tree.words())
        counts = Counter(word.lower() if lower else word for word in words)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls((word for word in ranked if counts[word] >= min_count), lower=lower)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and (word.lower() if self.lower else word) in self._ids

    def encode(self, word: str) -> int:
        """The id of a word, 0 if it is not known.

        Raises:
            TypeError: If it is no string.
        """
        if not isinstance(word, str):
            raise TypeError(f"Vocabulary.encode: got {word!r}, expected a word")
        return self._ids.get(word.lower() if self.lower else word, 0)

    def decode(self, number: int) -> str:
        """The word of an id.

        Raises:
            IndexError: If there is no such id; negative ones included, -1 meaning "no word".
            TypeError: If it is no integer.
        """
        check_integers("Vocabulary.decode", id=number)
        if not 0 <= number < len(self.words):
            raise IndexError(
                f"Vocabulary.decode: got id {number}, expected 0 to {len(self.words) - 1}"
            )
        return self.words[number]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the vocabulary as JSON; an existing file is replaced."""
        content = {"format": _FORMAT, "lower": self.lower, "words": self.words[1:]}
        # Encoded before the file is opened, which empties it.
        Path(path).write_bytes(json.dumps(content, ensure_ascii=False).encode("utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Reads what `save` wrote.

        Raises:
            ValueError: If the file is not a saved vocabulary.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:  # the second of JSON nested too deep
            raise ValueError(f"Vocabulary.load: {path} is not JSON: {error}") from error
        if not _is_saved(content):
            raise ValueError(
                f"Vocabulary.load: {path} is not a saved vocabulary; expected an object with "
                f'"format": "{_FORMAT}", a boolean "lower" and a list of strings "words"'
            )
        return cls(content["words"], lower=content["lower"])


def _is_saved(content: Any) -> bool:
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return False
    words = content.get("words")
    known = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return known and isinstance(content.get("lower"), bool)
