#!/usr/bin/env python3
"""The stages of tools/check: what runs, within which budget, and what was counted. See tools/check for how to call it."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from count_tests import count_junit

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LOGS = BUILD / "check"
JOBS = os.environ.get("TROUPE_JOBS") or str(os.cpu_count())
SETUP_BUDGET_S = 15 * 60
OVERRUN = 2  # a stage over its budget fails; at this many budgets it is ended, too
LOG_TAIL_LINES = 40
OUTPUT_BYTES_MAX = "10000000"  # of a test, in the result file; ctest's default cuts off the summary that is counted
TOTAL_BUDGET_S = {"fast": 5 * 60, "default": 45 * 60, "all": None}
MODES = ("fast", "default", "all")  # each includes the stages of those before it


@dataclass
class Stage:
    name: str
    mode: str  # the first of MODES that runs it
    budget_s: int
    commands: list
    junit: list = field(default_factory=list)  # result files to count test cases from; none: the stage itself is one check


def build(preset, *targets):
    return [["cmake", "--preset", preset], ["cmake", "--build", f"build/{preset}", "-j", JOBS] + (["--target", *targets] if targets else [])]


def tests(name, mode, budget_s, preset, labels, *, without=("model",), jobs=1, may_be_none=False, env=None):
    """The tests of some labels, without those on the real model, which have a stage of their own. Nothing found is a failure unless allowed, so that tests
    cannot get lost unseen."""
    result = LOGS / f"{name}.xml"
    prefix = ["env", *[f"{k}={v}" for k, v in env.items()]] if env else []
    command = prefix + ["ctest", "--test-dir", f"build/{preset}", "-L", f"^({'|'.join(labels)})$", *(["-LE", f"^({'|'.join(without)})$"] if without else []), "-j", str(jobs), "--output-on-failure",
                        "--no-tests=" + ("ignore" if may_be_none else "error"), "--output-junit", str(result),
                        "--test-output-size-passed", OUTPUT_BYTES_MAX, "--test-output-size-failed", OUTPUT_BYTES_MAX]
    return Stage(name, mode, budget_s, [command], [result])


ASAN = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
TSAN = {"TSAN_OPTIONS": f"suppressions={ROOT}/tools/lib/tsan.supp:second_deadlock_stack=1"}


def stages():
    return [
        Stage("format", "fast", 60, [["tools/format", "--check"]]),
        Stage("shellcheck", "fast", 60, [["tools/lib/shellcheck_all"]]),
        Stage("layering", "fast", 30, [["tools/layering.py"]]),
        # By clang, like the sanitizers' builds: in half of GCC's time. What GCC says of the product is found by "build release sim", of all else by "build release".
        Stage("build dev", "fast", 15 * 60, build("dev")),
        tests("unit", "fast", 180, "dev", ["unit"], jobs=JOBS),
        tests("actor", "fast", 180, "dev", ["actor"], jobs=JOBS),
        tests("model", "default", 420, "dev", ["model"], without=()),
        # Optimised: a debug build takes some five times as long for a seed.
        Stage("build release sim", "default", 15 * 60, build("release", "sim_chaos", "sim_test", "sim_planted_test")),
        tests("sim", "default", 240, "release", ["sim"], jobs=JOBS),
        # They wait more than they compute.
        tests("cluster", "default", 10 * 60, "dev", ["cluster"], jobs=3),
        tests("conformance", "default", 300, "dev", ["conformance"]),
        tests("fuzz", "default", 180, "dev", ["fuzz"], jobs=JOBS),
        Stage("build asan", "default", 20 * 60, build("asan", "unit_tests", "actor_tests", "fuzz_tests", "troupe")),
        tests("asan", "default", 10 * 60, "asan", ["unit", "actor", "fuzz"], jobs=JOBS, env=ASAN),
        Stage("build release", "all", 20 * 60, build("release")),
        tests("chaos", "all", 45 * 60, "release", ["chaos"], may_be_none=True),
        Stage("build tsan", "all", 25 * 60, build("tsan", "unit_tests", "actor_tests", "troupe")),
        tests("tsan", "all", 20 * 60, "tsan", ["unit", "actor"], jobs=JOBS, env=TSAN),
        Stage("clang-tidy", "all", 45 * 60, [*build("tidy", "troupe_schemas"), ["tools/lib/tidy.py"]]),
        Stage("build fuzz", "all", 20 * 60, [["cmake", "--preset", "fuzz", "-DTROUPE_FUZZ_SECONDS=120"], ["cmake", "--build", "build/fuzz", "-j", JOBS, "--target", "fuzz_tests"]]),
        tests("fuzz long", "all", 20 * 60, "fuzz", ["fuzz"], jobs=JOBS, env=ASAN),
    ]


def state_of_tree(root=ROOT):
    """Names what is checked: the tree of all files that git does not ignore, committed or not."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, GIT_INDEX_FILE=f"{folder}/index")
        for command in (["git", "read-tree", "HEAD"], ["git", "add", "-A"]):
            subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
        return subprocess.run(["git", "write-tree"], cwd=root, env=env, check=True, capture_output=True, text=True).stdout.strip()


def run_commands(stage, log):
    """Runs the commands in turn, output to the log. Returns (ok, seconds, why not)."""
    start = time.monotonic()
    with open(log, "wb") as out:
        for command in stage.commands:
            out.write(("$ " + " ".join(command) + "\n").encode())
            out.flush()
            # A group of its own, so that an end of the stage is an end of all that it started.
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(stage.budget_s * OVERRUN - (time.monotonic() - start))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as e:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                if isinstance(e, KeyboardInterrupt):
                    raise
                return False, time.monotonic() - start, f"ended at {OVERRUN} times its budget"
            if status != 0:
                return False, time.monotonic() - start, f"exit status {status} of {command[0]}"
    seconds = time.monotonic() - start
    return seconds <= stage.budget_s, seconds, "" if seconds <= stage.budget_s else "over its budget"


def run_stage(stage):
    log = LOGS / f"{stage.name.replace(' ', '-')}.log"
    for result in stage.junit:
        result.unlink(missing_ok=True)
    ok, seconds, why = run_commands(stage, log)
    passed = failed = skipped = 0
    for result in stage.junit:
        if result.exists():
            counted = count_junit(result)
            passed, failed, skipped = passed + counted.passed, failed + counted.failed, skipped + counted.skipped
    if not stage.junit:
        passed, failed = (1, 0) if ok else (0, 1)
    elif not ok and failed == 0:
        failed = 1  # over budget, or ctest itself failed
    note = f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "") if stage.junit else ("ok" if ok else "FAILED")
    print(f"{stage.name:<14} {seconds:7.1f} s of {stage.budget_s:5d} s   {note}{'   ' + why if why else ''}", flush=True)
    if failed:
        print(f"  the end of {log.relative_to(ROOT)}:")
        for line in log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]:
            print("    " + line)
    return passed, failed, skipped


def choose(args):
    everything = stages()
    if args.only:
        unknown = set(args.only) - {s.name for s in everything}
        if unknown:
            sys.exit(f"check: no such stage: {', '.join(sorted(unknown))} (tools/check --list)")
        return [s for s in everything if s.name in args.only]
    included = MODES[: MODES.index(args.mode) + 1]
    return [s for s in everything if s.mode in included]


def main():
    parser = argparse.ArgumentParser(prog="tools/check", description=__doc__)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--fast", dest="mode", action="store_const", const="fast", default="default")
    mode.add_argument("--all", dest="mode", action="store_const", const="all")
    mode.add_argument("--only", nargs="+", metavar="STAGE")
    mode.add_argument("--list", action="store_true")
    parser.add_argument("--setup-seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        for stage in stages():
            print(f"{stage.name:<14} --{stage.mode:<8} {stage.budget_s:5d} s")
        return 0

    LOGS.mkdir(parents=True, exist_ok=True)
    memory = LOGS / f"passed-{state_of_tree()}.json"
    remembered = json.loads(memory.read_text()) if args.mode == "all" and memory.exists() else {}
    start = time.monotonic() - args.setup_seconds
    passed, failed, skipped = (1, 0, 0) if args.setup_seconds <= SETUP_BUDGET_S else (0, 1, 0)
    print(f"{'setup':<14} {args.setup_seconds:7.1f} s of {SETUP_BUDGET_S:5d} s   {'ok' if passed else 'FAILED   over its budget'}", flush=True)
    broken = set()  # presets that did not build: their tests would only repeat it
    for stage in choose(args):
        if stage.name in remembered:
            counts = remembered[stage.name]
            print(f"{stage.name:<14} passed before on this very tree ({counts[0]} passed)", flush=True)
        elif stage.junit and any(f"build/{preset}" in stage.commands[0] for preset in broken):
            print(f"{stage.name:<14} not run: its build failed", flush=True)
            counts = [0, 1, 0]
        else:
            counts = run_stage(stage)
            if stage.name.startswith("build ") and counts[1]:
                broken.add(stage.name.removeprefix("build "))
            if not counts[1] and args.mode == "all":
                remembered[stage.name] = counts
                memory.write_text(json.dumps(remembered))
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    total, limit = time.monotonic() - start, None if args.only else TOTAL_BUDGET_S[args.mode]
    print(f"{'all':<14} {total:7.1f} s" + (f" of {limit:5d} s" if limit else ""))
    if limit and total > limit:
        print("  over the budget of the whole check")
        failed += 1
    if skipped:
        print(f"{skipped} test cases were skipped; each says why in its log under build/check")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
