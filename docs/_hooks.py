"""What the site does differently from a view of the repository: links to its files become text.

No content is made here; `mkdocs.yml` names this file.
"""

import posixpath
import re
from typing import Any, Final

_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Names a linked file that is not part of the site, such as a table's module, by its path."""
    folder = posixpath.dirname(page.file.src_uri)
    return _LINK.sub(lambda link: _in_site(link, folder), markdown)


def _in_site(link: re.Match[str], folder: str) -> str:
    path = posixpath.normpath(posixpath.join("docs", folder, link["path"]))
    if path.startswith("docs/"):
        return link[0]
    # A link text that is itself a path, whole or its last part, needs no second mention.
    text = link["text"].strip("`")
    return f"`{path}`" if path.endswith(text) else f"{link['text']} (`{path}`)"
