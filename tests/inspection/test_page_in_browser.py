"""The page in a browser: what is clicked shows what the tensor says.

Things are found as a screen reader finds them: by role and name.
"""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch

SOURCE, TARGET = "the old man reads a book", "der alte Mann liest"
HALF_BYTE = 0.5 / 255 + 1e-4
LEAST_LINE = 0.04


@pytest.fixture(scope="module")
def inspection(make_translator):
    return make_translator(SOURCE, TARGET, sharpness=4.0).inspect(SOURCE, target=TARGET)


@pytest.fixture
def open_page(browser, tmp_path):
    """`open_page(inspection)`: in a tab of its own; the test fails if the page logs an error or asks for anything."""
    tabs, trouble = [], []

    def open_it(inspection, **options):
        path = tmp_path / f"page{len(tabs)}.html"
        inspection.save(path)
        tab = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | options))
        tabs.append(tab)
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on(
            "console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None
        )
        tab.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_it
    for tab in tabs:
        tab.close()
    assert not trouble


@pytest.fixture
def tab(open_page, inspection):
    return open_page(inspection)


def test_the_page_says_what_was_cut(open_page, make_translator):
    translator = make_translator(SOURCE, TARGET)
    summary = open_page(translator.inspect(SOURCE, target=TARGET, max_source_length=4)).locator("#summary")
    assert summary.inner_text().endswith("; the source is too long; what comes after 4 tokens was not read.")
    whole = open_page(translator.inspect(SOURCE, target=TARGET)).locator("#summary")
    assert whole.inner_text().endswith("as in the code.")


def choose(tab, kind, layer, heads):
    tab.get_by_role("radiogroup", name="Kind of attention").get_by_role("radio", name=kind).click()
    tab.get_by_role("radiogroup", name="layer").get_by_role("radio", name=str(layer), exact=True).click()
    for button in tab.get_by_role("group", name="heads").get_by_role("button", name=re.compile("^head")).all():
        wanted = int(button.inner_text()) in heads
        if (button.get_attribute("aria-pressed") == "true") != wanted:
            button.click()


def lines_in(tab):
    """The lines drawn: weight by head, query and key."""
    script = "paths => paths.map(p => [+p.dataset.head, +p.dataset.query, +p.dataset.key, +p.dataset.weight])"
    return {(h, q, k): w for h, q, k, w in tab.locator("#lines path").evaluate_all(script)}


def assert_lines(found, maps, heads, keep=lambda query, key: True):
    """A line for every weight that can be seen, and no other."""
    for head, query, key in itertools.product(range(maps.size(0)), range(maps.size(1)), range(maps.size(2))):
        weight = float(maps[head, query, key])
        if head in heads and keep(query, key) and weight > LEAST_LINE + HALF_BYTE:
            assert found[head, query, key] == pytest.approx(weight, abs=HALF_BYTE)
        elif head not in heads or not keep(query, key) or weight < LEAST_LINE - HALF_BYTE:
            assert (head, query, key) not in found


def token(tab, side, place):
    return tab.locator(f'.token[data-side="{side}"][data-place="{place}"]')


def shown_shares(tab, side):
    """Of each token of a side: its bars by head, and the number beside them."""
    script = """tokens => tokens.map(t => [
        [...t.querySelectorAll("i")].filter(b => !b.hidden)
            .map(b => [+b.dataset.head, +b.style.getPropertyValue("--weight")]),
        t.querySelector(".number").textContent])"""
    return tab.locator(f'.token[data-side="{side}"]').evaluate_all(script)


@pytest.mark.parametrize(
    ("kind", "layer", "heads"),
    [("encoder", 1, [2]), ("decoder", 3, [0, 2]), ("cross", 0, [1]), ("cross", 2, [0, 1, 2]), ("cross", 3, [])],
)
def test_lines_are_the_weights_of_the_chosen_heads(tab, inspection, kind, layer, heads):
    choose(tab, kind, layer, heads)
    assert_lines(lines_in(tab), inspection.maps(kind)[layer], heads)
    queries, keys = inspection.labels(kind)
    assert tab.get_by_role("list", name="Tokens that look").get_by_role("button").all_inner_texts() == queries
    assert tab.get_by_role("list", name="Tokens looked at").get_by_role("button").all_inner_texts() == keys


def test_a_line_leads_from_its_query_to_its_key(tab):
    """In pixels: it begins beside the one and ends beside the other."""
    choose(tab, "cross", 1, [1])
    script = """p => [0, p.getTotalLength()].map(at => {
        const point = p.getPointAtLength(at).matrixTransform(p.getScreenCTM()); return [point.x, point.y]; })"""
    for path in tab.locator("#lines path").all()[:8]:
        box = {side: token(tab, side, path.get_attribute(f"data-{side}")).bounding_box() for side in ("query", "key")}
        begin, end = path.evaluate(script)
        assert begin == pytest.approx([box["query"]["x"] + box["query"]["width"], middle_of(box["query"])], abs=1)
        assert end == pytest.approx([box["key"]["x"], middle_of(box["key"])], abs=1)


def middle_of(box):
    return box["y"] + box["height"] / 2


@pytest.mark.parametrize(("side", "place"), [("query", 2), ("key", 5)])
def test_pointing_at_a_token_follows_it(tab, inspection, side, place):
    choose(tab, "cross", 1, [0, 2])
    token(tab, side, place).hover()
    maps = inspection.cross[1]
    assert_lines(lines_in(tab), maps, [0, 2], keep=lambda query, key: (query if side == "query" else key) == place)
    mine = maps[:, place] if side == "query" else maps[:, :, place]
    other = "key" if side == "query" else "query"
    for across, (bars, number) in enumerate(shown_shares(tab, other)):
        assert [head for head, _ in bars] == [0, 2]
        assert [weight for _, weight in bars] == pytest.approx(mine[[0, 2], across].tolist(), abs=HALF_BYTE)
        mean = float(mine[[0, 2], across].mean())
        if mean > 0.01:
            assert int(number.removesuffix("\u202f%")) == pytest.approx(100 * mean, abs=0.8)
    best = int(mine[[0, 2]].mean(0).argmax())
    name = (inspection.source_tokens if side == "query" else inspection.target_tokens)[best]
    assert re.search(rf"(look at|looked at by) {re.escape(name)} \({best}\)", tab.locator("#readout").inner_text())
    tab.mouse.move(2, 2)
    assert len(lines_in(tab)) > len(inspection.source_tokens)


def test_a_token_is_kept_by_a_click_and_let_go(tab):
    choose(tab, "encoder", 0, [0])
    everything = lines_in(tab)
    token(tab, "query", 3).click()
    tab.mouse.move(2, 2)
    tab.evaluate("document.activeElement.blur()")
    kept = lines_in(tab)
    assert {query for _, query, _ in kept} == {3}
    tab.keyboard.press("Escape")
    assert lines_in(tab) == everything


def test_the_map_is_the_mean_of_the_chosen_heads(tab, inspection):
    for kind, layer, heads in (("cross", 2, [0, 2]), ("decoder", 1, [1])):
        choose(tab, kind, layer, heads)
        tab.get_by_role("radio", name="map").click()
        expected = inspection.maps(kind)[layer, heads].mean(0)
        script = "cells => cells.map(c => [+c.dataset.query, +c.dataset.key, +c.dataset.weight, c.textContent])"
        cells = tab.get_by_role("table", name="Weights").locator("td[data-weight]").evaluate_all(script)
        assert len(cells) == expected.numel()
        for query, key, weight, text in cells:
            assert weight == pytest.approx(float(expected[query, key]), abs=HALF_BYTE)
            assert (text == "hidden") == (kind == "decoder" and key > query)
        headings = [inspection.labels(kind)[1], inspection.labels(kind)[0]]
        for scope, labels in zip(("col", "row"), headings, strict=True):
            assert tab.locator(f"#map th[scope={scope}]").all_inner_texts() == labels


def test_the_birds_eye_shows_every_head(tab, inspection):
    for kind in ("encoder", "cross"):
        choose(tab, kind, 0, [0])
        maps = inspection.maps(kind)
        pictures = tab.locator("#grid button")
        assert pictures.count() == maps.size(0) * maps.size(1)
        script = """b => { const c = b.querySelector("canvas");
            const pixels = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            return [c.height, c.width, [...pixels].filter((_, i) => i % 4 === 3)]; }"""
        for layer, head in itertools.product(range(maps.size(0)), range(maps.size(1))):
            picture = tab.get_by_role("button", name=f"layer {layer}, head {head}:")
            height, width, opacity = picture.evaluate(script)
            assert (height, width) == tuple(maps.shape[2:])
            drawn = (torch.tensor(opacity).view(height, width) / 255) ** 2
            assert (drawn - maps[layer, head]).abs().max() < 0.02
    tab.get_by_role("button", name="layer 3, head 1:").click()
    assert_lines(lines_in(tab), inspection.cross[3], [1])


def test_heads_are_ranked_by_any_column(tab, inspection):
    statistics = {str(one.head): one for one in inspection.statistics()}
    table = tab.locator("#ranking-table")
    columns = ["relative_entropy", "confidence", "diagonality", "distance"]
    for column, (label, measure) in enumerate(
        zip(["entropy", "confidence", "diagonal", "distance"], columns, strict=True), start=1
    ):
        button = table.get_by_role("button", name=label)
        if column > 1:  # the page begins with the first
            button.click()
        sign = 1 if measure in ("relative_entropy", "distance") else -1
        for direction in (1, -1):
            names = table.locator("tbody th").all_inner_texts()
            assert sorted(names) == sorted(statistics)
            values = [getattr(statistics[name], measure) for name in names]
            assert values == sorted(values, key=lambda value: sign * direction * value)
            ascending = sign * direction > 0
            heading = table.locator("thead th").nth(column)
            assert heading.get_attribute("aria-sort") == ("ascending" if ascending else "descending")
            shown = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
            for text, value in zip(shown, values, strict=True):
                number = float(text.removesuffix("\u202f%").removeprefix("<"))
                assert number == pytest.approx(value if measure == "distance" else 100 * value, abs=1.0)
            button.click()
    table.get_by_role("button", name="decoder.2.1", exact=True).click()
    assert_lines(lines_in(tab), inspection.decoder[2], [1])
    assert table.locator("tr.chosen th").all_inner_texts() == ["decoder.2.1"]


def test_stepping_through_the_decoding(tab, inspection):
    mean = inspection.cross.mean((0, 1))
    tab.get_by_role("slider", name="Step").fill("0")
    for place, step in enumerate(inspection.steps):
        assert tab.locator(".chip.now").inner_text() == step.token
        assert tab.locator(".chip.later").count() == len(inspection.steps) - 1 - place
        rows = tab.locator("#alternatives-list li")
        best = [(one.token, one.probability) for one in step.alternatives]
        best += [] if step.token in dict(best) else [(step.token, step.probability)]
        assert [float(row.get_attribute("data-probability")) for row in rows.all()] == [p for _, p in best]
        assert rows.locator("bdi").all_inner_texts() == [name for name, _ in best]
        assert tab.locator("#alternatives-list .written bdi").all_inner_texts() == [step.token]
        chips = tab.get_by_role("list", name="source").locator(".chip")
        weights = [float(chip.get_attribute("data-weight")) for chip in chips.all()]
        assert weights == pytest.approx(mean[place].tolist(), abs=HALF_BYTE)
        aligned = [chip.evaluate("c => c.classList.contains('aligned')") for chip in chips.all()]
        assert aligned == [key == inspection.alignment[place] for key in range(len(aligned))]
        tab.get_by_role("button", name="Next step").click()
    assert tab.locator("#step-text").inner_text() == "5 of 5"
    tab.get_by_role("button", name="Previous step").click()
    assert tab.locator(".chip.now").inner_text() == inspection.steps[-2].token
    # In cross-attention the step's row is followed too.
    assert {query for _, query, _ in lines_in(tab)} == {len(inspection.steps) - 2}


def test_playing_ends_at_the_last_step(tab, inspection):
    tab.clock.install()
    tab.get_by_role("slider", name="Step").fill("2")
    tab.get_by_role("button", name="Play").click()
    tab.clock.run_for(1500)
    assert tab.locator("#step-text").inner_text() == "5 of 5"
    tab.clock.run_for(1500)
    assert tab.get_by_role("button", name="Play").get_attribute("aria-pressed") == "false"


def test_all_of_it_by_keyboard(tab, inspection):
    press = tab.keyboard.press
    for key, kind, maps in (("e", "encoder", inspection.encoder), ("d", "decoder", inspection.decoder)):
        press(key)
        assert tab.get_by_role("radio", name=kind).get_attribute("aria-checked") == "true"
        for _ in range(6):
            press("]")
        press("1")
        assert_lines(lines_in(tab), maps[-1], [1])
        press("[")
        press("Alt+2")
        assert_lines(lines_in(tab), maps[-2], [1, 2])
        press("a")
        assert_lines(lines_in(tab), maps[-2], [0, 1, 2])
    press("c")
    token(tab, "query", 0).focus()
    press("ArrowDown")
    press("ArrowDown")
    assert {query for _, query, _ in lines_in(tab)} == {2}
    assert tab.locator("#readout").inner_text().startswith("Mann (2)")
    press("Enter")
    press("Tab")
    assert tab.evaluate("document.activeElement.dataset.side") == "key"
    press("End")
    assert tab.evaluate("document.activeElement.textContent").startswith("</s>")
    press("Escape")
    press("m")
    assert tab.locator("#map").is_visible()
    press(".")
    press(".")
    press(",")
    assert tab.locator("#step-text").inner_text() == "2 of 5" or tab.locator("#step-text").inner_text() == "4 of 5"


def test_every_control_has_a_name_and_changes_are_announced(tab):
    for kind in ("encoder", "cross"):
        choose(tab, kind, 0, [0])
        script = """all => all.map(e => (e.getAttribute("aria-label") || e.textContent || "").trim())"""
        assert all(tab.locator("button, input, [role=region]").evaluate_all(script)[:-1])
    assert tab.locator("#readout").get_attribute("aria-live") == "polite"
    assert tab.locator("html").get_attribute("lang") == "en"
    assert tab.get_by_role("heading", level=1).inner_text().startswith("the old man")
    # One stop of Tab for each list, not one for each token.
    stops = tab.locator("#lines .token[tabindex='0']").count()
    assert stops == 2


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(open_page, inspection, scheme):
    """Contrast of text to its background as WCAG 2 counts it: at least 4.5."""
    tab = open_page(inspection, color_scheme=scheme)
    script = "e => [getComputedStyle(e).color, getComputedStyle(e.closest('section, body')).backgroundColor]"

    def contrast(selector):
        text, ground = (luminance(colour) for colour in tab.locator(selector).first.evaluate(script))
        return (max(text, ground) + 0.05) / (min(text, ground) + 0.05)

    for selector in ("h1", "h2", "#readout", ".note", "#summary", ".token", "#ranking-table td"):
        assert contrast(selector) >= 4.5, selector
    ground = tab.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert (luminance(ground) > 0.5) == (scheme == "light")
    tab.get_by_role("button", name="Switch between light and dark").click()
    ground = tab.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert (luminance(ground) > 0.5) == (scheme == "dark")
    assert contrast("h1") >= 4.5


def test_right_to_left_and_chinese(open_page, make_translator):
    hebrew, chinese = "שלום עולם גדול", "你好 大 世界"
    found = make_translator(hebrew, chinese).inspect(hebrew, target=chinese)
    tab = open_page(found)
    source, target = (
        [chip.bounding_box()["x"] for chip in tab.locator(f"#{side}-chips .chip").all()]
        for side in ("source", "target")
    )
    assert source == sorted(source, reverse=True)  # the first word stands on the right
    assert target == sorted(target)
    assert tab.locator("#source-chips .chip").all_inner_texts() == [*hebrew.split(), "</s>"]
    assert tab.locator("#target-chips .chip").all_inner_texts() == [*chinese.split(), "</s>"]
    # Every label of the columns begins beside the lines, whichever way it is written.
    script = """labels => labels.map(label => { const range = document.createRange(); range.selectNodeContents(label);
        const box = range.getBoundingClientRect(); return [box.left, box.right]; })"""
    for side, edge in (("key", 0), ("query", 1)):
        edges = [box[edge] for box in tab.locator(f'.token[data-side="{side}"] bdi').evaluate_all(script)]
        assert edges == pytest.approx([edges[0]] * len(edges), abs=1)


@pytest.mark.parametrize("width", [360, 800])
def test_narrow_windows_scroll_down_only(open_page, inspection, width):
    tab = open_page(inspection, viewport={"width": width, "height": 700})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_fifty_tokens_of_six_and_six_layers(open_page, make_translator):
    words = " ".join(f"w{number}" for number in range(50))
    translator = make_translator(words, words, d_model=32, n_heads=8, encoder_layers=6, decoder_layers=6, sharpness=4.0)
    found = translator.inspect(words, target=words)
    tab = open_page(found)
    for kind, layer, head in (("encoder", 5, 7), ("cross", 3, 4)):
        tab.get_by_role("radio", name=kind).click()
        tab.get_by_role("button", name=f"layer {layer}, head {head}:").click()
        assert_lines(lines_in(tab), found.maps(kind)[layer], [head])
    token(tab, "key", 49).hover()
    assert {key for _, _, key in lines_in(tab)} <= {49}
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280


def test_tokens_are_text_and_no_markup(open_page, make_translator):
    words = "</script><script>document.title='taken'</script> <b>x</b> <img/src=x/onerror=alert(1)> &amp; {{"
    found = make_translator(words, words).inspect(words, target=words)
    tab = open_page(found)
    assert tab.locator("#source-chips .chip").all_inner_texts() == [*words.split(" "), "</s>"]
    assert tab.locator("img").count() == 0
    assert tab.title() == f"{words} → {words}"


def test_a_model_without_an_encoder(open_page, make_translator):
    tab = open_page(make_translator("a b", "x y", encoder_layers=0).inspect("a b"))
    assert tab.get_by_role("radio", name="encoder").is_disabled()
    tab.keyboard.press("e")
    assert tab.get_by_role("radio", name="cross").get_attribute("aria-checked") == "true"


def test_the_frame_of_a_notebook_shows_the_page(browser, inspection):
    tab = browser.new_page()
    tab.set_content(f"<!doctype html><body><p>before</p>{inspection._repr_html_()}</body>")
    frame = tab.frame_locator("iframe")
    frame.get_by_role("radio", name="decoder").click()
    assert frame.locator("#lines path").count() > 0
    assert math.isclose(tab.locator("iframe").bounding_box()["height"], 820, abs_tol=2)
    tab.close()
