#!/usr/bin/env python3
"""Checks that arrows between the parts only go down, and that foreign interfaces stay where they belong.

    layering.py [ROOT]

Every `#include` of an own file is checked against ALLOWED, every include of a guarded library against GUARDED. Prints one line for each fault and exits 1.
"""

import re
import sys
from pathlib import Path

# What a part may include, besides itself. Benchmarks share worlds with tests (`tests/support`). `messages/base` (errors, expected) stands below everything but itself.
ALLOWED = {
    "messages": [],
    "topology": ["messages/base"],
    "config": ["messages", "topology"],
    "gpu": ["messages", "topology"],
    "actors": ["messages", "topology", "config", "gpu"],
    "apps": ["messages", "topology", "config", "gpu", "actors"],
    "tools": ["messages", "topology", "config", "gpu", "actors", "tests/support"],
    "tests": ["messages", "topology", "config", "gpu", "actors", "apps"],
}

# A library's headers, and the only places that may see them: all else goes through a seam.
GUARDED = [
    (re.compile(r"^caf/"), ["actors", "apps", "messages/wire", "tools", "tests"]),
    (re.compile(r"^uc[pst]/"), ["gpu/transfer", "tools", "tests"]),
    (re.compile(r"^(llama|ggml)[^/]*\.h$|^(common|chat|sampling)\.h$"), ["gpu", "tools", "tests"]),
    (re.compile(r"^sqlite3\.h$"), ["actors/control", "tools", "tests"]),
    (re.compile(r"^toml(\+\+)?[/.]"), ["config", "tools", "tests"]),
    (re.compile(r"^boost/(beast|asio(?!/ip/address))"), ["actors/gateway", "actors/health", "actors/console", "apps", "tools", "tests"]),
]

# A policy decides from values alone: no actors, no clock, no randomness of its own.
POLICY = re.compile(r"(^|_)policy\.(hpp|cpp)$")
IMPURE = re.compile(r"\b(steady_clock|system_clock)::now\b|std::random_device|\b(rand|time)\(")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def inside(path, folders):
    return any(path == f or path.startswith(f + "/") or path.startswith(f) and "/" in f for f in folders)


def faults_of(root, file):
    path = file.relative_to(root).as_posix()
    part = path.split("/")[0]
    policy = POLICY.search(file.name)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path}:{number}"
        if match := INCLUDE.match(line):
            target = match.group(2)
            other = target.split("/")[0]
            if other in ALLOWED and other != part and not inside(target, ALLOWED[part]):
                yield f"{where}: {part} must not know {target} (allowed: {', '.join(ALLOWED[part]) or 'nobody'})"
            for pattern, places in GUARDED:
                if pattern.search(target) and not inside(path, places):
                    yield f"{where}: <{target}> belongs to {', '.join(places)}"
            if policy and target.startswith("caf/"):
                yield f"{where}: a policy knows no actors"
        elif policy and IMPURE.search(line.split("//")[0]):
            yield f"{where}: a policy takes time and randomness as values"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    files = [f for part in ALLOWED for f in sorted((root / part).rglob("*")) if f.suffix in (".hpp", ".cpp")]
    faults = [fault for file in files for fault in faults_of(root, file)]
    print("\n".join(faults), end="\n" if faults else "")
    print(f"layering: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
