"""Counts test cases in ctest's JUnit file: within an entry, those that Catch2 or unittest reports; an entry that says nothing is one case."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

CATCH_ALL_PASSED = re.compile(r"^All tests passed \(\d+ assertions? in (\d+) test cases?\)", re.M)
CATCH_SOME_FAILED = re.compile(r"^test cases:\s*(\d+)((?:\s*\|\s*\d+ [a-z ]+)*)", re.M)
CATCH_PART = re.compile(r"\|\s*(\d+) ([a-z ]+?)\s*(?=\||$)")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.M)
UNITTEST_PART = re.compile(r"\b(failures|errors|skipped|unexpected successes)=(\d+)")
# What a test prints when the machine lacks what it needs (a model, a privilege): it passed nothing, and must not look as if it had.
SKIPPED = re.compile(r"^\s*(?:.*: )?skipped: ", re.M | re.I)


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def count_output(text, entry_passed):
    """One entry's cases, from its output and ctest's own verdict, which has the last word."""
    counts = Counts()
    if match := CATCH_ALL_PASSED.search(text):
        counts.passed = int(match.group(1))
    elif match := CATCH_SOME_FAILED.search(text):
        parts = {name: int(number) for number, name in CATCH_PART.findall(match.group(2))}
        counts.failed = parts.get("failed", 0)
        counts.passed = int(match.group(1)) - counts.failed
    elif match := UNITTEST_RAN.search(text):
        parts = {name: int(number) for name, number in UNITTEST_PART.findall(text[match.start():])}
        counts.failed = parts.get("failures", 0) + parts.get("errors", 0) + parts.get("unexpected successes", 0)
        counts.skipped = parts.get("skipped", 0)
        counts.passed = int(match.group(1)) - counts.failed - counts.skipped
    elif entry_passed:
        counts.passed = 1
    said_skipped = min(len(SKIPPED.findall(text)), counts.passed)
    counts.passed -= said_skipped
    counts.skipped += said_skipped
    if not entry_passed and counts.failed == 0:
        counts.failed = 1  # a crash after, or instead of, the summary
    return counts


def count_junit(path):
    total = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") in ("notrun", "disabled"):
            # Skipped by its own word (exit status 77, say) is one thing, a program that isn't there another.
            why = case.find("skipped")
            if why is not None and why.get("message", "").startswith("SKIP_"):
                total.skipped += 1
            else:
                total.failed += 1
            continue
        text = "".join(e.text or "" for e in case.iter("system-out"))
        counts = count_output(text, case.get("status") == "run" and case.find("failure") is None)
        total.passed += counts.passed
        total.failed += counts.failed
        total.skipped += counts.skipped
    return total
