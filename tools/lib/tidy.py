#!/usr/bin/env python3
"""Runs clang-tidy on own sources, two at a time or as many as there are processors, and goes on where it was stopped.

    tools/lib/tidy.py [FILE ...]      all that build/tidy compiles, or those that are named

Needs `cmake --preset tidy`, its target troupe_schemas, and `tools/setup --all`. A source that had no finding is not looked at again before it, a header or .clang-tidy changes.
Exit status 1: there are findings."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tidy"
SHIM = ROOT / "tools" / "lib" / "tidy_capnp.hpp"
JOBS = int(os.environ.get("TROUPE_JOBS") or os.cpu_count())


def cache_dir():
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("TROUPE_CACHE_DIR:"):
            return Path(line.partition("=")[2])
    sys.exit("tidy: build/tidy/CMakeCache.txt names no TROUPE_CACHE_DIR; run cmake --preset tidy")


def own_sources():
    """Source file → the command that compiles it, without what is generated."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    own = {Path(c["file"]): c["command"] for c in commands}
    return {file: command for file, command in sorted(own.items()) if file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / "build")}


def digest_of_headers():
    """Of all that may change what is found in a source that did not change itself: own headers, schemas, the configuration, the program's version."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.hpp", "*.capnp", ".clang-tidy", "tools/requirements/tidy.txt"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256()
    for name in sorted(n for n in listed.split("\0") if n and (ROOT / n).exists()):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.digest()


class Tidy:
    def __init__(self):
        self.program = cache_dir() / "venv" / "tidy" / "bin" / "clang-tidy"
        if not self.program.exists():
            sys.exit(f"tidy: {self.program} is missing; run tools/setup --all")
        self.common = digest_of_headers()
        self.passed = BUILD / "passed"
        self.passed.mkdir(exist_ok=True)

    def stamp(self, file, command):
        return self.passed / hashlib.sha256(self.common + command.encode() + file.read_bytes()).hexdigest()

    def look_at(self, file, command):
        """What there is to say about a source: empty when nothing."""
        stamp = self.stamp(file, command)
        if stamp.exists():
            return ""
        done = subprocess.run([self.program, "--quiet", "--warnings-as-errors=*", "--extra-arg-before=-include", f"--extra-arg-before={SHIM}", "-p", BUILD, file],
                              cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 0:
            stamp.touch()
            return ""
        return done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=lambda f: Path(f).resolve(), metavar="FILE")
    args = parser.parse_args()
    sources = own_sources()
    unknown = [str(f) for f in args.files if f not in sources]
    if unknown:
        sys.exit(f"tidy: build/tidy does not compile {', '.join(unknown)}")
    chosen = {f: sources[f] for f in args.files or sources}
    tidy, start, bad = Tidy(), time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        running = {pool.submit(tidy.look_at, file, command): file for file, command in chosen.items()}
        for done, job in enumerate(concurrent.futures.as_completed(running), 1):
            said = job.result()
            bad += bool(said)
            print(f"[{done}/{len(chosen)}] {running[job].relative_to(ROOT)}" + ("\n" + said if said else ""), flush=True)
    print(f"{len(chosen)} sources in {time.monotonic() - start:.0f} s, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
