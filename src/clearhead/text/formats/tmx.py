"""Translation memories in TMX, the exchange format of translators' tools.

The file is streamed through expat, the parser of Python's own XML modules: expat alone tells the line of each
element while the file is being read. Entity declarations, the stuff of XML bombs, are refused; external ones
are never fetched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from clearhead.errors import DataError
from clearhead.text.lines import Pair, fold_field_breaks, open_bytes

CHUNK_BYTES = 1 << 16

# Their content is mark-up of the translated document's own format (TMX 1.4b, section 4), no text of the
# sentence.
NATIVE_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


def read_tmx(path: Path, source: str | None, target: str | None) -> Iterator[Pair]:
    """Pairs of the segments in two languages of each translation unit that has both.

    Args:
        path: a `.tmx` file, in the encoding that its XML declaration names.
        source: the source's language: `en` stands for `en-US` and `EN-gb` too.
        target: the target's language.
    """
    languages: dict[str, None] = {}  # a dict keeps the order in which they were met
    found = False
    for unit in _units(path):
        languages.update(dict.fromkeys(unit.segments))
        if source is None or target is None:
            raise DataError(
                f"{path}: which language is which? Its first unit has {_listed(unit.segments)}; name them: "
                'source_column="…", target_column="…"'
            )
        source_text, target_text = unit.text(source), unit.text(target)
        if source_text is not None and target_text is not None:
            found = True
            yield Pair(fold_field_breaks(source_text), fold_field_breaks(target_text), unit.line)
    if languages and not found:
        raise DataError(
            f"{path}: no unit has both {source!r} and {target!r}; the file's languages are {_listed(languages)}"
        )


def _listed(languages: Iterable[str]) -> str:
    return ", ".join(map(repr, languages))


@dataclass
class _Unit:
    """A `<tu>`: the same sentence in several languages."""

    line: int
    segments: dict[str, str] = field(default_factory=dict)

    def text(self, language: str) -> str | None:
        """The segment in exactly this language, or else in the first that narrows it (`en` to `en-us`)."""
        wanted = language.lower().replace("_", "-")
        narrower = (text for code, text in self.segments.items() if code.startswith(wanted + "-"))
        return self.segments.get(wanted, next(narrower, None))


class _UnitCollector:
    """Hears expat's events and keeps the units that are finished."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.finished: list[_Unit] = []
        self._parser = parser
        self._unit: _Unit | None = None
        self._language = ""
        self._text: list[str] | None = None  # of the open <seg>
        self._native_depth = 0
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self._unit = _Unit(self._parser.CurrentLineNumber)
        elif tag == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang") or ""  # "lang" is TMX before 1.4
            self._language = language.lower().replace("_", "-")
        elif tag == "seg":
            self._text = []
        elif tag in NATIVE_CODES:
            self._native_depth += 1

    def _end(self, tag: str) -> None:
        if tag == "seg":
            if self._unit is not None and self._text is not None and self._language:
                self._unit.segments.setdefault(self._language, "".join(self._text))
            self._text = None
        elif tag == "tu" and self._unit is not None:
            self.finished.append(self._unit)
            self._unit = None
        elif tag == "tuv":
            self._language = ""
        elif tag in NATIVE_CODES:
            self._native_depth -= 1

    def _characters(self, data: str) -> None:
        if self._text is not None and not self._native_depth:
            self._text.append(data)


def _units(path: Path) -> Iterator[_Unit]:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    collector = _UnitCollector(parser)

    def refuse_entity(name: str, *_: object) -> None:
        raise DataError(f"{path}, line {parser.CurrentLineNumber}: declares the entity {name!r}, which is refused")

    parser.EntityDeclHandler = refuse_entity
    with open_bytes(path) as stream:
        while True:
            chunk = stream.read(CHUNK_BYTES)
            try:
                parser.Parse(chunk, not chunk)
            except (expat.ExpatError, LookupError, ValueError) as error:  # the latter: encodings
                line = parser.CurrentLineNumber
                raise DataError(f"{path}, line {line}: not a well-formed TMX file: {error}") from error
            yield from collector.finished
            collector.finished.clear()
            if not chunk:
                return
