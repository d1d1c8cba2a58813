"""Strategies: whole pages of exposition text as exporters may write them, of both formats."""

from hypothesis import strategies as st

_NAMES = st.from_regex(r"\A[a-zA-Z_:][a-zA-Z0-9_:]{0,6}\Z")
_LABEL_NAMES = st.from_regex(r"\A[a-zA-Z][a-zA-Z0-9_]{0,5}\Z").filter(
    lambda name: name not in ("le", "quantile")
)
_TEXTS = st.text(
    st.sampled_from('\\"\nn},{=# \t\r') | st.characters(exclude_categories=["Cs"]), max_size=6
)
_QUOTED = st.text(st.sampled_from('\\"\nné ,={}#.'), min_size=1, max_size=6)
_SHORT = st.sampled_from(["", "0", "GPU-a", 'a"b', "é", "\\", "a\nb", "} 1", " # {"])
_REALS = (
    st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.integers(-(2**70), 2**70).map(str)
    | st.decimals(allow_nan=False, allow_infinity=False, places=6).map(str)
    | st.tuples(st.integers(0, 10**18), st.integers(-330, 310)).map(lambda x: f"{x[0]}e{x[1]}")
    | st.sampled_from(
        ["-0", "-0.0", "+0", "0e-5", "+5", ".5", "5.", "-.5", "1E+05", "1e-5", "22.582000", "007",
         "0000000000000001.5", "9007199254740993", "0.1", "1e22", "1e23", "123456789012345678",
         "4294967295", "9223372036854775794", "18446744073709551615", "1" + "0" * 30, "1e400",
         "4.9e-324", "2.4703282292062328e-324", "1e-400"]
    )
)  # fmt: skip
NUMBERS = _REALS | st.sampled_from(
    ["NaN", "nan", "+NaN", "-NaN", "+Inf", "-Inf", "Inf", "inf", "+inf", "Infinity", "-infinity"]
)
_MOST_MS = 9_223_372_036_854  # what 64 bits of nanoseconds hold
_MILLISECONDS = (
    st.integers(-_MOST_MS, _MOST_MS).map(str)
    | st.sampled_from(["0", "-1", "+5", "0001767225600000", "1767225600000", str(_MOST_MS)])
    | st.integers(10**12, 2 * 10**12).map(str)
)
_BLANKS = st.sampled_from([" ", " ", " ", "  ", "\t", " \t"])
_NO_BLANKS = st.sampled_from(["", "", "", "", " ", "\t", " \t "])
_ASIDE = st.sampled_from(
    ["", "", "  ", "\t", "#", "# a comment", "# EOF is near", "#TYPE m counter", "# HELP", "\r",
     "# type m counter", '# say "hi', "##", "# UNIT m watts"]
)  # fmt: skip

_BARE = st.sampled_from(
    ["m", "{}", '{""} 1', "# TYPE m", "# TYPE 5m gauge", '# HELP "m x', "# TYPE m nonsense",
     "\ufeff", "\r\r", "\r# TYPE m gauge", "\r", "\x00", "h {count:24,sum:100,schema:0}", "# EOF"]
)  # fmt: skip

KINDS = ("counter", "counter_total", "gauge", "untyped", "histogram", "summary", "none")


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def label_blocks(draw, labels, *, has_name, quoted_name=None):
    """Labels in braces, with what the text format allows around them; perhaps no braces."""
    gap = draw(_NO_BLANKS)
    terms = [f'{gap}{key}{gap}={gap}"{escape(text)}"{gap}' for key, text in labels.items()]
    if draw(st.integers(0, 9)) == 0:
        terms.append(f'"{escape(draw(_QUOTED))}"="{escape(draw(_SHORT))}"')
    if not has_name:
        terms.insert(draw(st.integers(0, len(terms))), f'"{escape(quoted_name)}"')
    block = ("," if draw(st.integers(0, 9)) == 0 else "") + ",".join(terms)
    if terms and draw(st.booleans()):
        block += f",{gap}"
    return f"{gap}{{{block}}}" if block or draw(st.booleans()) else ""


@st.composite
def text_samples(draw, name, extra=()):
    """A sample line of the text format."""
    labels = draw(st.dictionaries(_LABEL_NAMES, _TEXTS, max_size=3)) | dict(extra)
    is_quoted = draw(st.integers(0, 14)) == 0
    block = draw(label_blocks(labels, has_name=not is_quoted, quoted_name=name))
    blank = draw(_BLANKS)
    line = f"{'' if is_quoted else name}{block}{blank if not block else draw(_NO_BLANKS)}"
    line += draw(NUMBERS)
    if draw(st.booleans()):
        line += f" {draw(st.sampled_from(['', ' ', '  ']))}{draw(_MILLISECONDS)}"
        # The official parser does not part numbers at tabs where there are blanks, too.
        line = line.replace("\t", " ") if "\t" in line.rpartition("}")[2] else line
    return f"{draw(st.sampled_from(['', '', '', ' ', chr(9)]))}{line}" + draw(
        st.sampled_from(["", "", "", " ", "\t", "\r"])
    )


@st.composite
def _text_family(draw, number):
    kind = draw(st.sampled_from(KINDS))
    name = f"{draw(_NAMES)}{number}" + ("_total" if kind == "counter_total" else "")
    told = draw(st.sampled_from([name, name, name, f'"{name}"']))
    blank = draw(st.sampled_from([" ", " ", "  ", "\t"]))
    head = []
    if draw(st.booleans()):
        help_text = draw(st.sampled_from(["Power (in mW).", "", "a \\\\ b\\nc", 'say "hi"', "#"]))
        head.append(f"#{blank}HELP{blank}{told} {help_text}".rstrip(" "))
    if kind != "none":
        head.append(f"#{blank}TYPE{blank}{told}{blank}{kind.removesuffix('_total')}")
    if draw(st.booleans()):
        head.reverse()
    forms = {
        "histogram": [("_bucket", {"le": "0.5"}), ("_bucket", {"le": "+Inf"}), ("_sum", {}),
                      ("_count", {})],
        "summary": [("", {"quantile": "0.99"}), ("_sum", {}), ("_count", {})],
    }.get(kind, [("", {})])  # fmt: skip
    lines = [
        draw(text_samples(name + suffix, extra.items()))
        for suffix, extra in forms
        for _ in range(draw(st.integers(1, 2)))
    ]
    for _ in range(draw(st.integers(0, 2))):
        lines.insert(draw(st.integers(0, len(lines))), draw(_ASIDE))
    return [*head, *lines]


@st.composite
def text_pages(draw):
    """A page of text format 0.0.4, all of it valid."""
    n_families = draw(st.integers(0, 4))
    lines = [line for number in range(n_families) for line in draw(_text_family(number))]
    ending = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    return ending.join(lines) + draw(st.sampled_from([ending, ending, ""]))


_UNITS = ("", "", "watts", "celsius")
_SECONDS = (
    st.integers(0, 9_223_372_035).map(str)
    | st.decimals(0, 9_223_372_035, allow_nan=False, places=3).map(str)
    | st.decimals(0, 2_000_000_000, allow_nan=False, places=9).map(str)
    | st.sampled_from(["1.7672256e9", "1767225600.", ".5", "0", "1767225600.1234567891", "1e-9"])
)
_COUNTS = st.integers(0, 10**6).map(str) | st.sampled_from(["1e3", "5.0", "+7", "0"])
_AMOUNTS = _REALS.filter(lambda text: not text.startswith("-"))


@st.composite
def _exemplars(draw):
    if draw(st.booleans()):
        return ""
    labels = draw(st.dictionaries(_LABEL_NAMES, st.sampled_from(["", "a b", "é", "{}#"])))
    block = ",".join(f'{key}="{text}"' for key, text in list(labels.items())[:3])
    ts = f" {draw(_SECONDS)}" if draw(st.booleans()) else ""
    return f" # {{{block}}} {draw(_REALS)}{ts}"


@st.composite
def _open_group(draw, kind, name, labels, ts):
    """The sample lines of one set of labels."""

    def line(suffix, value, extra=(), exemplar=""):
        items = [*labels.items(), *extra]
        block = ",".join(f'{key}="{escape(text)}"' for key, text in items)
        block = f"{{{block}}}" if items or draw(st.booleans()) else ""
        return f"{name}{suffix}{block} {value}{ts}{exemplar}"

    if kind == "counter":
        created = [line("_created", draw(_SECONDS))] if draw(st.booleans()) else []
        return [line("_total", draw(_AMOUNTS), exemplar=draw(_exemplars())), *created]
    if kind in ("histogram", "gaugehistogram"):
        some, all_ = sorted(draw(st.tuples(st.integers(0, 99), st.integers(0, 99))))
        letter = "g" if kind == "gaugehistogram" else ""
        return [
            line("_bucket", some, [("le", "0.5")], draw(_exemplars())),
            line("_bucket", all_, [("le", "+Inf")], draw(_exemplars())),
            line(f"_{letter}count", all_),
            line(f"_{letter}sum", draw(_AMOUNTS)),
        ]
    if kind == "summary":
        return [
            line("", draw(_AMOUNTS), [("quantile", "0.5")]),
            line("_count", draw(_COUNTS)),
            line("_sum", draw(_AMOUNTS)),
        ]
    if kind == "info":
        return [line("_info", 1, [("version", draw(_SHORT))])]
    if kind == "stateset":
        return [line("", draw(st.sampled_from("01")), [(name, state)]) for state in ("on", "off")]
    return [line("", draw(NUMBERS))]


@st.composite
def _open_family(draw, number):
    kind = draw(
        st.sampled_from(["counter", "gauge", "histogram", "gaugehistogram", "summary", "info",
                         "stateset", "unknown", "none"])
    )  # fmt: skip
    name = f"f{number}_{draw(st.sampled_from(['a', 'power', 'x:y']))}"
    unit = draw(st.sampled_from(_UNITS)) if kind not in ("info", "stateset", "none") else ""
    name += f"_{unit}" if unit else ""
    head = [f"# TYPE {name} {kind}"] if kind != "none" else []
    head += [f"# UNIT {name} {unit}"] if unit else []
    if draw(st.booleans()):
        head.append(f"# HELP {name} {draw(st.sampled_from(['Some text.', 'a b', '#']))}")
    key = st.fixed_dictionaries({}, optional={"gpu": _SHORT, "uuid": _TEXTS})
    some = draw(st.lists(key, min_size=1, max_size=3, unique_by=lambda k: tuple(k.items())))
    times = st.just("") | _SECONDS.map(" {}".format)
    # The official parser takes all lines of an info family for one group, with one time.
    of_all = draw(times)
    lines = []
    for labels in some:
        ts = of_all if kind == "info" else draw(times)
        lines += draw(_open_group(kind, name, labels, ts))
    return [*head, *lines]


@st.composite
def open_pages(draw):
    """A page of OpenMetrics, all of it valid."""
    n_families = draw(st.integers(0, 4))
    lines = [line for number in range(n_families) for line in draw(_open_family(number))]
    return "".join(f"{line}\n" for line in [*lines, "# EOF"])


_LETTERS = st.sampled_from(
    [*' \t\r,"{}=#\\_:.+-e0159naiINFx', "\x0b", "\x0c", "\xa0", "\u0661", "é"]
)


@st.composite
def spoiled_lines(draw, pages):
    """A sample line of such pages with one or two letters put in, left out or exchanged."""
    lines = [line for line in draw(pages).split("\n") if line.strip() and line[0] != "#"]
    line = list(draw(st.sampled_from(lines or ["m 1"])))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 1))] = draw(st.lists(_LETTERS, max_size=1))
    return "".join(line)


@st.composite
def odd_pages(draw, pages):
    """Such a page in which further lines are spoiled ones and comments that say too little."""
    lines = draw(pages).split("\n")
    for line in draw(st.lists(spoiled_lines(pages) | _ASIDE | _BARE, min_size=1, max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    return "\n".join(lines)
