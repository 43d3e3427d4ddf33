"""Files of pairs: each format, plain and packed, and what is wrong in them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from clearhead.errors import ConfigError, DataError
from clearhead.text.readers import CorpusFiles, Pair, hold_out, read_pairs

PAIRS = [
    ("Hello, world!", "你好，世界！"),
    ('say "a"', "tab-free\u2028line"),
    ("", "no source"),
    (" two  spaces ", "é"),
]

TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Hello &amp; welcome</seg></tuv><tuv xml:lang="DE"><seg>Grüße</seg></tuv></tu>
<tu>
 <tuv xml:lang="fr"><seg>pas ici</seg></tuv><tuv xml:lang="de"><seg>nur deutsch</seg></tuv></tu>
<tu><note>A <seg>stray</seg> note</note>
 <tuv lang="de"><seg>Ein <hi>fettes</hi> Wort</seg></tuv>
 <tuv lang="EN_gb"><seg>A <bpt>&lt;b></bpt>bold<ept>&lt;/b></ept> word<ph>x</ph></seg></tuv></tu>
</body></tmx>
"""

PO = r"""# header
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: file.c:1
#, c-format
msgid "Open %s"
msgstr "Öffne %s"

msgctxt "menu"
msgid ""
"Two\n"
"lines \"quoted\" \\ \303\251"
msgstr "Zwei	U+2028:"""

PO += (
    "\u2028.\x0c"
    + r""""
#, fuzzy
#| msgid "older"
msgid "Guess"
msgstr "Rate"
#~ msgid "gone"
#~ msgstr "weg"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "later"
msgstr ""
"""
)


def read(path: Path, content: bytes | str, **options: Any) -> list[Pair]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_pairs(CorpusFiles(pairs=path, **options)))


def write_parquet(path: Path, columns: dict[str, Any]) -> bytes:
    parquet.write_table(pyarrow.table(columns), path)
    return path.read_bytes()


def test_tsv(tmp_path: Path) -> None:
    content = "".join(f"{source}\t{target}\tattribution\n" for source, target in PAIRS)
    expected = [Pair(*pair, line) for line, pair in enumerate(PAIRS, start=1)]
    assert read(tmp_path / "a.tsv", content) == expected
    assert read(tmp_path / "a.tsv.gz", gzip.compress(content.encode())) == expected
    assert read(tmp_path / "a.train", content, format="tsv") == expected
    swapped = read(tmp_path / "a.tsv", content, source_column=1, target_column=0)
    assert [pair.source for pair in swapped] == [target for _, target in PAIRS]


def test_tsv_with_a_header(tmp_path: Path) -> None:
    content = "id\tde\ten\n7\tja\tyes\n\n8\tnein\tno\n"
    pairs = read(tmp_path / "a.tsv", content, source_column="en", target_column="de")
    assert pairs == [Pair("yes", "ja", 2), Pair("", "", 3), Pair("no", "nein", 4)]
    with pytest.raises(DataError, match=r"a\.tsv, line 1: no column is named 'fr'.*'id', 'de', 'en'"):
        read(tmp_path / "a.tsv", content, source_column="fr", target_column="de")


def test_line_without_a_tab_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tsv, line 2: 1 column where column 2 is needed.*'no tab here'"):
        read(tmp_path / "a.tsv", "a\tb\nno tab here\n")


def test_csv(tmp_path: Path) -> None:
    content = 'a,"x, y"\r\n"line\r\nbreak","say ""hi"""\r\n\r\nlast,pair\r\n'
    expected = [
        Pair("a", "x, y", 1),
        Pair("line\nbreak", 'say "hi"', 2),
        Pair("", "", 4),
        Pair("last", "pair", 5),
    ]
    assert read(tmp_path / "a.csv", content) == expected
    assert read(tmp_path / "a.csv.gz", gzip.compress(content.encode())) == expected
    named = read(tmp_path / "a.csv", "de,en\nja,yes\n", source_column="en", target_column="de")
    assert named == [Pair("yes", "ja", 2)]


def test_csv_with_a_field_of_a_megabyte(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "x" * 2**20 + ",y\n")[0].source == "x" * 2**20


@pytest.mark.parametrize("content", ['a,"never closed\nb,c\n', 'a,"x"y\n', "a;b\n"])
def test_broken_csv_is_named_with_its_line(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv, line 2"):
        read(tmp_path / "a.csv", "good,pair\n" + content)


def test_json_lines(tmp_path: Path) -> None:
    rows = [json.dumps({"target": target, "source": source, "id": 1}) for source, target in PAIRS]
    content = "\n".join(rows) + "\n\n" + '{"source": null, "target": "a\\r\\nb\\rc"}'
    expected = [Pair(*pair, line) for line, pair in enumerate(PAIRS, start=1)]
    expected += [Pair("", "", len(PAIRS) + 1), Pair("", "a\nb c", len(PAIRS) + 2)]
    assert read(tmp_path / "a.jsonl", content) == expected
    assert read(tmp_path / "a.jsonl.gz", gzip.compress(content.encode())) == expected


def test_json_lines_inside_an_object(tmp_path: Path) -> None:
    content = '{"translation": {"en": "yes", "de": "ja"}}\n{"translation.en": "no", "translation": {"de": "nein"}}'
    columns = {"source_column": "translation.en", "target_column": "translation.de"}
    assert read(tmp_path / "a.jsonl", content, **columns) == [Pair("yes", "ja", 1), Pair("no", "nein", 2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "target": ', "not a line of JSON"),
        ('["a", "b"]', "a JSON object"),
        ('{"source": "a", "output": "b"}', "no 'target' in it, only 'source', 'output'"),
        ('{"source": "a", "target": 5}', "'target' is of type int"),
        ('{"source": "a", "target": "\\ud83d"}', "half of a surrogate pair"),
        ("[" * 100_000, "not a line of JSON"),
        ('{"source": "a", "target": ' + "9" * 10_000 + "}", "not a line of JSON"),
    ],
)
def test_broken_json_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{message}"):
        read(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n' + line)


def test_parquet(tmp_path: Path) -> None:
    sources, targets = zip(*PAIRS, strict=True)
    columns = {
        "id": range(5),
        "source": [*sources, None],
        "target": pyarrow.array([*targets, "x"]).dictionary_encode(),
    }
    content = write_parquet(tmp_path / "a.parquet", columns)
    expected = [Pair(*pair, line) for line, pair in enumerate([*PAIRS, ("", "x")], start=1)]
    assert read(tmp_path / "a.parquet", content) == expected
    assert read(tmp_path / "a.parquet.gz", gzip.compress(content)) == expected


def test_parquet_inside_a_struct(tmp_path: Path) -> None:
    rows = [{"en": "yes", "de": "ja", "x": 1}, None, {"en": "no", "de": None, "x": 2}]
    content = write_parquet(tmp_path / "a.parquet", {"id": [1, 2, 3], "translation": rows})
    columns = {"source_column": "translation.en", "target_column": "translation.de"}
    assert read(tmp_path / "a.parquet", content, **columns) == [
        Pair("yes", "ja", 1),
        Pair("", "", 2),
        Pair("no", "", 3),
    ]


def test_broken_parquet_is_named(tmp_path: Path) -> None:
    content = write_parquet(tmp_path / "a.parquet", {"source": ["a"], "target": [5], "bytes": [b"\xff"]})
    with pytest.raises(DataError, match=r"a\.parquet: column 'target' is of type int64"):
        read(tmp_path / "a.parquet", content)
    with pytest.raises(DataError, match=r"no column 'en', only 'source', 'target'"):
        read(tmp_path / "a.parquet", content, source_column="en")
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 3, ["source", "source", "target"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    for name, broken in (("a", content[:-10]), ("twice", (tmp_path / "twice.parquet").read_bytes())):
        with pytest.raises(DataError, match=rf"{name}\.parquet: not a Parquet file"):
            read(tmp_path / f"{name}.parquet", broken)


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_tmx(encoding: str, tmp_path: Path) -> None:
    content = TMX.format(encoding=encoding).encode(encoding)
    columns = {"source_column": "en", "target_column": "de"}
    expected = [Pair("Hello & welcome", "Grüße", 4), Pair("A bold word", "Ein fettes Wort", 7)]
    assert read(tmp_path / "a.tmx", content, **columns) == expected
    assert read(tmp_path / "a.tmx.gz", gzip.compress(content), **columns) == expected


def test_tmx_needs_its_languages(tmp_path: Path) -> None:
    content = TMX.format(encoding="UTF-8")
    with pytest.raises(DataError, match=r"'en-us', 'de'.*source_column="):
        read(tmp_path / "a.tmx", content)
    with pytest.raises(DataError, match=r"no unit has both 'en' and 'it'.*'en-us', 'de', 'fr'"):
        read(tmp_path / "a.tmx", content, source_column="en", target_column="it")


def test_broken_tmx_is_named_with_its_line(tmp_path: Path) -> None:
    columns = {"source_column": "en", "target_column": "de"}
    bomb = TMX.format(encoding="UTF-8").replace('"tmx14.dtd"', '"tmx14.dtd" [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]')
    with pytest.raises(DataError, match=r"a\.tmx, line 2: declares the entity 'a'"):
        read(tmp_path / "a.tmx", bomb, **columns)
    with pytest.raises(DataError, match=r"a\.tmx, line \d+: not a well-formed TMX file"):
        read(tmp_path / "a.tmx", TMX.format(encoding="UTF-8")[:-40], **columns)
    with pytest.raises(DataError, match=r"a\.tmx, line 1: .*encoding"):
        read(tmp_path / "a.tmx", TMX.format(encoding="klingon"), **columns)


def test_gettext(tmp_path: Path) -> None:
    # case D1 among others: U+2028 and form feed inside a message
    expected = [
        Pair("Open %s", "Öffne %s", 7),
        Pair('Two\nlines "quoted" \\ é', "Zwei\tU+2028:\u2028.\x0c", 10),
        Pair("%d file", "%d Datei", 22),
        Pair("%d files", "%d Dateien", 22),
        Pair("later", "", 27),
    ]
    assert read(tmp_path / "a.po", PO) == expected
    assert read(tmp_path / "a.po.gz", gzip.compress(PO.encode())) == expected
    swapped = read(tmp_path / "a.po", PO, source_column="msgstr", target_column="msgid")
    assert swapped[0] == Pair("Öffne %s", "Open %s", 7)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), translation=st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_gettext_reads_what_polib_writes(text: str, translation: str, tmp_path: Path) -> None:
    polib = pytest.importorskip("polib")
    catalogue = polib.POFile()
    text, translation = (part.replace("\r", "").encode("utf-8", "ignore").decode() for part in (text, translation))
    catalogue.append(polib.POEntry(msgid=text, msgstr=translation))
    content = "".join(str(entry) + "\n" for entry in catalogue)
    pairs = read(tmp_path / "a.po", content)
    assert [(pair.source, pair.target) for pair in pairs] == ([(text, translation)] if text else [])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('msgid "a"\nmsgstr "b\n', 2),
        ('"a"\n', 1),
        ('msgid "a"\nmsgid "b"\n', 2),
        ('\nmsgid "a"\n', 2),
        ("hello\n", 1),
    ],
)
def test_broken_gettext_is_named_with_its_line(content: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a\.po, line {line}:"):
        read(tmp_path / "a.po", content)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"source": "a"},
        {"source": "a", "target": "b", "pairs": "c.tsv"},
        {"source": "a", "pairs": "c.tsv"},
        {"source": "a", "target": "b", "weight": 0},
        {"source": "a", "target": "b", "weight": float("nan")},
        {"source": "a", "target": "b", "format": "tsv"},
        {"pairs": "a.tsv", "format": "xls"},
    ],
)
def test_impossible_corpora_are_refused(options: dict[str, Any]) -> None:
    paths = {key: Path(value) for key, value in options.items() if key in ("source", "target", "pairs")}
    with pytest.raises(ConfigError):
        CorpusFiles(**options | paths)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("a.train", (None, None)),
        ("a.gz", (None, None)),
        ("a.tsv", (-1, 0)),
        ("a.tsv", ("en", 1)),
        ("a.jsonl", (0, 1)),
        ("a.tmx", (0, 1)),
        ("a.po", ("msgid", "msgid")),
    ],
)
def test_impossible_columns_are_refused(name: str, columns: tuple[Any, Any], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=name):
        list(read_pairs(CorpusFiles(pairs=tmp_path / name, source_column=columns[0], target_column=columns[1])))


def test_held_out_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{i // 2}\ttarget {i}\n" for i in range(1000)) + "\n\tno source\n")
    files = CorpusFiles(pairs=path)
    train, valid = hold_out([files], seed=1, pairs=100)
    pairs = [pair for pair in read_pairs(files) if pair.source]
    sides = [[pair.source for pair in pairs if pair in side] for side in (train, valid)]
    assert len(sides[1]) == 100
    assert len(sides[0]) == 900
    assert not set(sides[0]) & set(sides[1])  # both targets of a source are on the same side
    assert hold_out([files], seed=1, share=0.1) == (train, valid)
    assert hold_out([files], seed=2, pairs=100) != (train, valid)
    for wrong in (
        {"pairs": 0},
        {"pairs": 1000},
        {"share": 0.0},
        {"share": 1.0},
        {},
        {"pairs": 1, "share": 0.5},
    ):
        with pytest.raises(ConfigError):
            hold_out([files], seed=1, **wrong)
