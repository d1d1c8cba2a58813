"""Templates of log lines: what stays the same in lines that differ by numbers, paths and names.

A tree of fixed depth after He, Zhu, Zheng, Lyu, "Drain: an online log parsing approach with fixed
depth tree" (ICWS 2017), written anew because the package of that name pins exact old versions of
what this project needs in newer ones. Which lines are worth a template is not decided here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

WILDCARD: Final = "<*>"
OTHER: Final = "<other>"
"""Template of the lines that came when there was no room for another one."""

_MASKS: Final = (
    (
        re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
        "<uuid>",
    ),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:[:<]\d{1,5}>?)?"), "<ip>"),
    (re.compile(r"(?<![\w.])(?:\w+://|~?/|\.{1,2}/)[^\s'\",;:()\[\]]+"), "<path>"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "<hex>"),
    # Hexadecimal without 0x: a hash or an address, if it is long and has a digit.
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"(?<![A-Za-z_0-9])[-+]?\d+(?:[.,:/-]\d+)*(?:[eE][-+]?\d+)?"), "<num>"),
)


def mask(text: str) -> str:
    """Replaces what is particular to one line.

    Args:
        text: A line.

    Returns:
        The line with <uuid>, <ip>, <path>, <hex> and <num> in place of such values.

    >>> mask("worker 12 at 10.0.0.7:29500 lost /ckpt/step_100/a.pt (0x7f3a)")
    'worker <num> at <ip> lost <path> (<hex>)'
    """
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


@dataclass
class _Template:
    """A template under construction."""

    tokens: list[str]
    place: int


@dataclass
class _Node:
    """An inner node: children by token, templates at the leaves."""

    children: dict[str, "_Node"] = field(default_factory=dict)
    templates: list[_Template] = field(default_factory=list)


@dataclass(kw_only=True)
class TemplateTree:
    """Learns templates line by line; the same lines in the same order give the same templates.

    Memory is bounded by `most_templates`, `most_children` and `most_tokens`, whatever is fed.

    Attributes:
        depth: Tokens that lead to a leaf, after the number of tokens.
        similarity: Share of equal tokens from which a line belongs to a template.
        most_templates: Templates kept; what comes later and fits none is `OTHER`.
        most_children: Different tokens kept per node; later ones share one branch.
        most_tokens: Tokens of a line that are looked at.
    """

    depth: int = 3
    similarity: float = 0.5
    most_templates: int = 1000
    most_children: int = 100
    most_tokens: int = 60
    _roots: dict[int, _Node] = field(default_factory=dict)
    _templates: list[_Template] = field(default_factory=list)

    def add(self, line: str) -> int | None:
        """Learns a line.

        Args:
            line: The line.

        Returns:
            Place of its template; None where there is no room for another template. The
            template may become more general with later lines, its place stays.
        """
        tokens = mask(line).split()[: self.most_tokens]
        leaf = self._leaf(tokens)
        found = _most_similar(leaf.templates, tokens, at_least=self.similarity)
        if found is not None:
            found.tokens = [
                kept if kept == token else WILDCARD
                for kept, token in zip(found.tokens, tokens, strict=True)
            ]
            return found.place
        if len(self._templates) >= self.most_templates:
            return None
        template = _Template(tokens, len(self._templates))
        leaf.templates.append(template)
        self._templates.append(template)
        return template.place

    def text(self, place: int | None) -> str:
        """The template at a place, as far as it is known by now; `OTHER` for None."""
        return OTHER if place is None else " ".join(self._templates[place].tokens)

    def __len__(self) -> int:
        """Templates kept."""
        return len(self._templates)

    def _leaf(self, tokens: Sequence[str]) -> _Node:
        """The leaf for a line: by number of tokens, then by its first ones."""
        node = self._roots.setdefault(len(tokens), _Node())
        for token in tokens[: self.depth]:
            # A token with a digit or a masked part would give a branch per value.
            is_value = "<" in token or any(char.isdigit() for char in token)
            key = WILDCARD if is_value else token
            if key not in node.children and len(node.children) >= self.most_children:
                key = WILDCARD
            node = node.children.setdefault(key, _Node())
        return node


def _most_similar(
    templates: Sequence[_Template], tokens: Sequence[str], *, at_least: float
) -> _Template | None:
    """The template with most equal tokens; of equals the one with fewer wildcards, then the first.

    A wildcard counts as unlike, so that a general template takes no line from a precise one.
    """
    best: _Template | None = None
    best_score = (-1, 0)
    for template in templates:
        pairs = zip(template.tokens, tokens, strict=True)
        equal = sum(kept == token for kept, token in pairs)
        score = (equal, -template.tokens.count(WILDCARD))
        if score > best_score:
            best, best_score = template, score
    if best is None or best_score[0] < at_least * len(tokens):
        return None
    return best
