"""The page as text: self-contained, small, faithful, and safe from what tokens say."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import zlib

import pytest
import torch

from clearhead.inspection.page import SCRIPTS, page_data, render_frame, render_page
from clearhead.inspection.sentence import Inspection, Step

HOSTILE = [
    "</script><script>document.title='taken'</script>",
    "<img/src=x/onerror=alert(1)>",
    "{{",
    "data",
    "}}",
    "$x$",
    "&lt;",
]


@pytest.fixture(scope="module")
def inspection(make_translator):
    return make_translator("a b c", "x y z").inspect("a c b b c", target="x z y")


def embedded(page):
    """The data in a page, as a browser reads them."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(data, kind):
    """The weights of a kind, by another way than the page's."""
    raw = zlib.decompress(base64.b64decode(data["weights"]))
    about = data["kinds"][kind]
    shape = (about["layers"], about["heads"], len(about["queries"]), len(about["keys"]))
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return torch.tensor(list(raw[about["place"] : about["place"] + size])).view(shape) / 255


def test_the_weights_are_those_of_the_tensors(inspection):
    data = embedded(render_page(inspection))
    for kind in ("encoder", "decoder", "cross"):
        assert (unpacked(data, kind) - inspection.maps(kind)).abs().max() <= 0.5 / 255 + 1e-6
        assert (data["kinds"][kind]["queries"], data["kinds"][kind]["keys"]) == inspection.labels(kind)
    assert len(zlib.decompress(base64.b64decode(data["weights"]))) == sum(
        inspection.maps(kind).numel() for kind in ("encoder", "decoder", "cross")
    )
    assert data["alignment"] == inspection.alignment
    assert [step["probability"] for step in data["steps"]] == [step.probability for step in inspection.steps]
    assert len(data["heads"]) == 3 * (2 + 4 + 4)


def test_nothing_is_fetched(inspection):
    page = render_page(inspection)
    assert set(re.findall(r"\w+://[^\s\"'`)]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, no address
    assert not re.search(r"<link|@import|url\(|\b(?:src|href)=|\bfetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page


def noisy(length, layers, heads):
    """Maps that can be compressed little: every weight at random."""

    def maps(queries, keys, causal=False):
        scores = 3 * torch.randn(layers, heads, queries, keys)
        if causal:
            scores = scores.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(1), -torch.inf)
        return scores.softmax(-1)

    torch.manual_seed(0)
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnop", k=8)) for _ in range(length - 1)] + ["</s>"]
    return Inspection(
        source=" ".join(words), translation=" ".join(words), source_tokens=words, target_tokens=words,
        encoder=maps(length, length), decoder=maps(length, length, causal=True), cross=maps(length, length),
        steps=[Step(word, 0.5, []) for word in words], alignment=list(range(length)),
    )  # fmt: skip


def test_fifty_tokens_of_the_largest_paper_model_stay_under_a_megabyte():
    """6 + 6 layers of 16 heads, at that, and noise instead of attention."""
    assert len(render_page(noisy(51, 6, 16)).encode()) < 1_000_000
    assert len(render_page(noisy(51, 6, 8)).encode()) < 500_000


def test_tokens_stay_text(make_translator):
    words = " ".join(HOSTILE)
    found = make_translator(words, words).inspect(words, target=words)
    page = render_page(found)
    assert embedded(page)["source_tokens"] == [*HOSTILE, "</s>"]
    assert page.count("</script>") == 2
    assert "<title>" + html.escape(f"{words} → {words}") + "</title>" in page
    assert "<img" not in page.replace(html.escape(words), "")


def test_every_part_is_used(inspection):
    from clearhead.inspection.page import FILES

    assert {path.name for path in FILES.iterdir()} == {"page.html", "page.css", *SCRIPTS}
    assert "{{ " not in render_page(inspection)


def test_a_sentence_without_choices_is_valid_json(make_translator):
    """A first step has one key: its statistics are not defined, and JSON has no NaN."""
    found = make_translator("a", "x").inspect("a", target="")
    heads = embedded(render_page(found))["heads"]
    assert {one["entropy"] for one in heads if one["kind"] == "decoder"} == {None}
    assert page_data(found)["steps"][0]["token"] == "</s>"


def test_a_notebook_gets_the_page_in_a_frame(inspection, tmp_path):
    frame = inspection._repr_html_()
    assert frame == render_frame(inspection)
    assert 'sandbox="allow-scripts"' in frame
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == render_page(inspection)
    inspection.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == render_page(inspection)
