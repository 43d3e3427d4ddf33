"""Tokenizers and data: what goes wrong before any model sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from clearhead.doctor.examination import Examination
from clearhead.doctor.finding import Finding, fault, fine, not_measured, warning
from clearhead.doctor.patient import TextSide
from clearhead.doctor.places import places

CONTROL_TEXTS = (
    "<pad>",
    "<s>",
    "</s>",
    "<unk>",
    "<bos>",
    "<eos>",
    "<mask>",
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<|endoftext|>",
)
HARD_TEXTS = ("two  spaces", " leading and trailing ", "don't stop, please!", "café naïve", "3,141.59 (about)")
MANY_UNKNOWN = 0.01


def check_tokenizer(examination: Examination) -> Finding:
    """Text that looks like control tokens; text to ids and back; and the rate of unknown tokens."""
    sides = examination.patient.text_sides
    if not sides:
        return not_measured("needs the tokenizers: Patient(text_sides=…)")
    parts = []
    for name, side in sides.items():
        finding = examine_side(name, side)
        if finding.verdict != "fine":
            return finding
        parts.append(finding.measured)
    return fine("; ".join(parts))


def examine_side(name: str, side: TextSide) -> Finding:
    """One tokenizer."""
    look_at = places(side.encode)
    for text in CONTROL_TEXTS:
        ids = side.encode(f"a {text} b")
        made = side.control.intersection(ids) - side.control.intersection(side.encode("a b"))
        if made:
            causes = (
                "the tokenizer looks for its special tokens in every text: whoever writes one can end or mask the "
                "input. Encode with split_special_tokens=True (transformers) or encode_special_tokens (tokenizers)",
            )
            return fault(f"{name}: the text {text!r} becomes the control token {min(made)}", causes, look_at)
    texts = list(side.texts) or list(HARD_TEXTS)
    lost = [(text, back) for text in texts if (back := round_trip(side, text)) not in (None, text)]
    unknown = [sum(token == side.unknown for token in side.encode(text)) for text in texts]
    tokens = sum(len(side.encode(text)) for text in texts)
    share = sum(unknown) / max(tokens, 1)
    measured = (
        f"{name}: {len(texts)} texts, {len(lost)} change on the way to ids and back, {share:.1%} of tokens unknown"
    )
    if side.texts and share > MANY_UNKNOWN:
        example = texts[max(range(len(texts)), key=unknown.__getitem__)]
        causes = ("the vocabulary was made of other text, too small a part, or text normalised in another way",)
        return fault(f"{measured}, for example in {example!r}", causes, look_at)
    if lost:
        causes = ("spaces, case, accents or punctuation are folded or split off, and not put back",)
        return fault(f"{measured}: {lost[0][0]!r} comes back as {lost[0][1]!r}", causes, look_at)
    return fine(measured)


def round_trip(side: TextSide, text: str) -> str | None:
    """What comes back; `None` if something in it is unknown, which is counted elsewhere."""
    ids = side.encode(text)
    return None if side.unknown in ids else side.decode([token for token in ids if token not in side.control])


def check_data(examination: Examination) -> Finding:
    """Pairs in both sets, empty, identical and outlandishly long ones, and a slip of lines."""
    sets = {name: list(pairs) for name, pairs in examination.patient.data.items()}
    if not sets:
        return not_measured("needs the pairs: Patient(data=…)")
    problems, parts = [], []
    names = list(sets)
    for name in names[1:]:
        known = set(sets[names[0]])
        both = sum(pair in known for pair in sets[name])
        parts.append(f"{both:,} of {len(sets[name]):,} pairs of {name} are in {names[0]} too")
        if both > max(2, 0.01 * len(sets[name])):
            problems.append(
                (f"{parts[-1]}", "split by source, and remove duplicates before splitting: the figure is flattered")
            )
    for name, pairs in sets.items():
        problems += examine_pairs(name, pairs)
        parts.append(f"{name}: {len(pairs):,} pairs")
    if problems:
        worst = [text for text, _ in problems]
        serious = [p for p in problems if not p[1].startswith("(")]
        make = fault if serious else warning
        return make("; ".join(worst), [cause.strip("()") for _, cause in (serious or problems)])
    return fine("; ".join(parts))


def examine_pairs(name: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What is wrong with a set, each with its cause; in brackets what may be meant."""
    if not pairs:
        return [(f"{name} has no pairs", "an empty file, or everything was filtered out")]
    problems = []
    empty = [i for i, (source, target) in enumerate(pairs, 1) if not source.strip() or not target.strip()]
    if empty:
        problems.append(
            (
                f"{name}: {len(empty):,} pairs with an empty side (first {empty[0]})",
                "drop them pairwise, or the lines shift",
            )
        )
    same = [i for i, (source, target) in enumerate(pairs, 1) if source.strip() and source == target]
    if len(same) > 0.1 * len(pairs):
        problems.append(
            (
                f"{name}: {len(same) / len(pairs):.0%} of pairs have equal sides (first {same[0]})",
                "(untranslated text, or the wrong file twice)",
            )
        )
    repeated = sum(count - 1 for count in Counter(pairs).values())
    if repeated > 0.2 * len(pairs):
        problems.append(
            (f"{name}: {repeated / len(pairs):.0%} of pairs are repetitions", "(duplicates weigh more than others)")
        )
    typical = median(len(s) + len(t) for s, t in pairs)
    long = [i for i, (s, t) in enumerate(pairs, 1) if len(s) + len(t) > 30 * max(typical, 10)]
    if long:
        problems.append(
            (
                f"{name}: {len(long):,} pairs are over 30 times as long as is typical (first {long[0]})",
                "(lines that were joined, or debris; they decide how much memory is needed)",
            )
        )
    slip = slip_of_lines(pairs)
    if slip is not None:
        problems.append(
            (
                f"{name}: from pair {slip} on the lengths of the sides no longer go together",
                "a line too many or too few on one side: from there on every pair is wrong",
            )
        )
    return problems


def slip_of_lines(pairs: Sequence[tuple[str, str]]) -> int | None:
    """Where lengths stop going together, if they did before: the sign of a shifted line.

    The correlation of the sides' lengths in blocks; where it falls from a good one to none, and a shift by one or two
    lines brings it back.
    """
    block = max(50, min(500, len(pairs) // 8))
    if len(pairs) < 3 * block:
        return None
    starts = range(0, len(pairs) - block + 1, block)
    fit = [correlation(pairs[start : start + block], 0) for start in starts]
    good = [value for value in fit if value > 0.5]
    if not good:
        return None
    for start, value in zip(starts, fit, strict=True):
        part = pairs[start : start + block]
        if value < 0.3 and max(correlation(part, shift) for shift in (-2, -1, 1, 2)) > 0.5:
            return start + 1
    return None


def correlation(pairs: Sequence[tuple[str, str]], shift: int) -> float:
    """Of the sources' lengths with those of the targets, `shift` lines later."""
    sources, targets = [len(s) for s, _ in pairs], [len(t) for _, t in pairs]
    if shift > 0:
        sources, targets = sources[:-shift], targets[shift:]
    elif shift < 0:
        sources, targets = sources[-shift:], targets[:shift]
    n = len(sources)
    mean_s, mean_t = sum(sources) / n, sum(targets) / n
    cov = sum((s - mean_s) * (t - mean_t) for s, t in zip(sources, targets, strict=True))
    var = sum((s - mean_s) ** 2 for s in sources) * sum((t - mean_t) ** 2 for t in targets)
    return cov / var**0.5 if var else 0.0
