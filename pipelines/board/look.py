"""Templates, style sheet and script of the board, and what their version is.

The look is that of the reports: `pipelines/report/templates/report.css.j2` with the tones of
`pipelines.report.figure`. No page's content is here.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

from pipelines.report.figure import TONES
from pipelines.report.words import counted

_SHARED: Final = "report.css.j2"


@cache
def environment() -> Environment:
    """The board's templates; every value is escaped, and a name that is not there is an error."""
    own = resources.files("pipelines.board").joinpath("templates")
    shared = resources.files("pipelines.report").joinpath("templates")

    def load(name: str) -> str:
        return (shared if name == _SHARED else own).joinpath(name).read_text(encoding="utf-8")

    made = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["counted"] = counted
    return made


@cache
def style_sheet() -> str:
    """The style sheet."""
    # Colours and lengths only: nothing in it comes from outside.
    return environment().get_template("board.css.j2").render(tones=TONES)


@cache
def script() -> str:
    """The only script."""
    return resources.files("pipelines.board").joinpath("static/board.js").read_text("utf-8")


@cache
def version() -> str:
    """Changes with the style sheet or the script, so that browsers may keep both for good."""
    return hashlib.sha256((style_sheet() + script()).encode()).hexdigest()[:12]
