"""Which pairs can be trained on, and the report of those that can't: how many, why, and on which lines."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from clearhead.text.lines import is_blank
from clearhead.text.readers import CorpusFiles, Pair
from clearhead.text.tokenizers import CONTROL_NAMES

FIRST_LINES = 10
LINES_IN_SUMMARY = 3

# What other toolkits take for control tokens. With ours it is ordinary text, but it is seldom meant to be
# there.
LITERAL_CONTROL = re.compile("|".join(map(re.escape, (*CONTROL_NAMES, "<blank>"))))


@dataclass
class Finding:
    """Something found in a file: how often, and the first lines."""

    reason: str
    file: str
    count: int = 0
    first_lines: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first_lines) < FIRST_LINES:
            self.first_lines.append(line)

    def __str__(self) -> str:
        shown = self.first_lines[:LINES_IN_SUMMARY]
        more = ", …" if self.count > len(shown) else ""
        return (
            f"{self.count:,} {self.reason} ({self.file} {'line' if self.count == 1 else 'lines'} "
            f"{', '.join(map(str, shown))}{more})"
        )


@dataclass
class FilterReport:
    """What became of the pairs of one or several corpora."""

    kept: int = 0
    dropped: list[Finding] = field(default_factory=list)
    """The pairs that were left out, by reason and file."""
    notices: list[Finding] = field(default_factory=list)
    """What was kept, but may not be meant: texts that hold `<pad>` and the like."""
    noun: str = "pairs"
    """What it is about."""

    @property
    def total(self) -> int:
        """The pairs read."""
        return self.kept + sum(finding.count for finding in self.dropped)

    def summary(self) -> str:
        """One line such as `kept 28,990 of 29,000 pairs; 10 longer than 256 tokens (train.en lines 12, 408,
        911, …)`."""
        share = f"{self.kept:,} of {self.total:,}" if self.dropped else f"all {self.total:,}"
        kept = f"kept {share} {self.noun}"
        return "; ".join([kept, *map(str, self.dropped), *map(str, self.notices)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "FilterReport":
        """The inverse of `to_dict`."""
        findings = {name: [Finding(**finding) for finding in values[name]] for name in ("dropped", "notices")}
        return cls(values["kept"], **findings, noun=values.get("noun", "pairs"))


class PairFilter:
    """Decides on the pairs of one corpus, and notes the decisions in a report."""

    def __init__(self, report: FilterReport, files: CorpusFiles, *, max_length: int) -> None:
        self._report = report
        self._files = files
        self._max_length = max_length

    def keeps(self, pair: Pair, source_ids: Sequence[int], target_ids: Sequence[int]) -> bool:
        """Whether a pair can be trained on; its ids are as the tokenizers give them, without the end
        token."""
        dropped, notices, line = self._report.dropped, self._report.notices, pair.line
        source_file, target_file = self._files.source_file.name, self._files.target_file.name
        # A text of separators alone is not blank, but has no tokens.
        no_source = not source_ids or is_blank(pair.source)
        no_target = not target_ids or is_blank(pair.target)
        limit = self._max_length - 1  # a place for the end token
        too_long = f"longer than {self._max_length} tokens"
        if no_source and no_target:
            note(dropped, "blank on both sides", source_file, line)
        elif no_source:
            note(dropped, "with empty source", source_file, line)
        elif no_target:
            note(dropped, "with empty target", target_file, line)
        elif len(source_ids) > limit:
            note(dropped, too_long, source_file, line)
        elif len(target_ids) > limit:
            note(dropped, too_long, target_file, line)
        else:
            self._report.kept += 1
            for text, file in ((pair.source, source_file), (pair.target, target_file)):
                if "<" in text and LITERAL_CONTROL.search(text):
                    note(notices, "with <pad>, </s> or the like, taken as ordinary text", file, line)
            return True
        return False


def note(findings: list[Finding], reason: str, file: str, line: int) -> None:
    """Count one more of a kind."""
    for finding in findings:
        if (finding.reason, finding.file) == (reason, file):
            break
    else:
        finding = Finding(reason, file)
        findings.append(finding)
    finding.add(line)
