"""The project's own tools: what guards the code must itself be able to fail."""

import contextlib
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

SOURCE = Path(os.environ["TROUPE_SOURCE_DIR"])
sys.path[:0] = [str(SOURCE / "tools"), str(SOURCE / "tools/lib")]

import check
import count_tests
import layering


class QuickstartTest(unittest.TestCase):
    """The end of tools/quickstart, with a process that sleeps in place of a node."""

    def script(self, folder):
        text = (SOURCE / "tools/quickstart").read_text()
        parts = [re.search(rf"^{name}\(\) \{{$.*?^\}}$", text, re.S | re.M)[0] for name in ("stop_nodes", "hurry", "on_exit")]
        traps = re.findall(r"^trap .*$", text, re.M)
        path = Path(folder) / "end.sh"
        path.write_text("\n".join([
            "set -euo pipefail", "nodes=() waiting= stop_seconds=20", 'say() { printf "%s\\n" "$*" >&2; }', *parts, *traps,
            "setsid sleep 600 </dev/null >/dev/null 2>&1 &", "nodes+=($!)", f'echo "$!" >{folder}/pid.new', f"mv {folder}/pid.new {folder}/pid",
            'say "Serving."', 'wait -n "${nodes[@]}"', ""]))
        return path

    def node_of(self, folder):
        path, until = Path(folder) / "pid", time.monotonic() + 30
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return int(path.read_text())

    def assert_ends(self, pid):
        until = time.monotonic() + 30
        while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < until:
            time.sleep(0.02)
        left = Path(f"/proc/{pid}/exe").exists()
        if left:
            os.kill(pid, signal.SIGKILL)
        self.assertFalse(left, "the node is still there")

    def test_a_terminal_that_is_closed_leaves_no_node_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            script = self.script(folder)
            pid, terminal = pty.fork()
            if pid == 0:
                os.execvp("bash", ["bash", str(script)])
            node = self.node_of(folder)
            os.close(terminal)
            os.waitpid(pid, 0)
            self.assert_ends(node)

    def test_nor_does_an_end_that_nobody_can_be_told_of(self):
        with tempfile.TemporaryDirectory() as folder:
            read, write = os.pipe()
            with subprocess.Popen(["bash", str(self.script(folder))], stdin=subprocess.DEVNULL, stdout=write, stderr=write) as end:
                node = self.node_of(folder)
                os.close(read)
                os.close(write)
                end.terminate()
            self.assert_ends(node)


class LayeringTest(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                sys.argv = ["layering.py", folder]
                status = layering.main()
            lines = out.getvalue().splitlines()[:-1]
            self.assertEqual(status, 1 if lines else 0)
            return lines

    def test_arrows_down_are_fine(self):
        self.assertEqual([], self.faults({
            "apps/main.cpp": '#include "actors/link/link.hpp"\n#include "config/cluster.hpp"\n',
            "actors/link/link.cpp": '#include "actors/link/link.hpp"\n#include "gpu/engine/engine.hpp"\n#include <caf/all.hpp>\n',
            "config/cluster.hpp": '#include "messages/base/expected.hpp"\n#include "topology/topology.hpp"\n',
            "messages/wire.hpp": "#include <caf/serializer.hpp>\n",
        }))

    def test_arrows_up_are_faults(self):
        for path, include in {
            "messages/frozen.hpp": "topology/topology.hpp",
            "topology/topology.hpp": "config/cluster.hpp",
            "gpu/kv/pool.hpp": "actors/link/link.hpp",
            "config/parse.cpp": "gpu/engine/types.hpp",
            "actors/router/router.cpp": "apps/exit_codes.hpp",
        }.items():
            with self.subTest(path):
                self.assertEqual(1, len(self.faults({path: f'// first line\n#include "{include}"\n'})))

    def test_the_fault_names_file_and_line(self):
        (fault,) = self.faults({"gpu/kv/pool.hpp": '\n\n#include "actors/link/link.hpp"\n'})
        self.assertTrue(fault.startswith("gpu/kv/pool.hpp:3: "), fault)

    def test_foreign_interfaces_stay_in_their_folders(self):
        for path, include in {
            "gpu/kv/pool.cpp": "<caf/all.hpp>",
            "messages/frozen.hpp": "<caf/all.hpp>",
            "actors/workers/worker.cpp": "<ucp/api/ucp.h>",
            "actors/gateway/server.cpp": "<llama.h>",
            "apps/node.cpp": '"llama.h"',
        }.items():
            with self.subTest(path):
                self.assertEqual(1, len(self.faults({path: f"#include {include}\n"})))

    def test_policies_are_pure(self):
        self.assertEqual(1, len(self.faults({"actors/router/router_policy.cpp": "auto t = std::chrono::steady_clock::now();\n"})))
        self.assertEqual([], self.faults({"actors/router/router_actor.cpp": "auto t = std::chrono::steady_clock::now();\n"}))
        self.assertEqual([], self.faults({"actors/router/router_policy.cpp": "// not steady_clock::now()\n"}))
        self.assertEqual(1, len(self.faults({"actors/router/router_policy.hpp": "#include <caf/all.hpp>\n"})))


class CountTest(unittest.TestCase):
    def counted(self, text, passed):
        counts = count_tests.count_output(text, passed)
        return counts.passed, counts.failed, counts.skipped

    def test_catch2(self):
        self.assertEqual((3, 0, 0), self.counted("All tests passed (5 assertions in 3 test cases)", True))
        self.assertEqual((1, 0, 0), self.counted("All tests passed (1 assertion in 1 test case)", True))
        self.assertEqual((11, 1, 0), self.counted("test cases: 12 | 11 passed | 1 failed\nassertions: 9 | 8 passed | 1 failed", False))

    def test_unittest(self):
        self.assertEqual((3, 3, 1), self.counted("Ran 7 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=1)\n", False))
        self.assertEqual((6, 0, 1), self.counted("Ran 7 tests in 0.1s\n\nOK (skipped=1)\n", True))

    def test_ctest_has_the_last_word(self):
        self.assertEqual((3, 1, 0), self.counted("All tests passed (5 assertions in 3 test cases)\n==1== ERROR: LeakSanitizer", False))
        self.assertEqual((0, 1, 0), self.counted("", False))
        self.assertEqual((1, 0, 0), self.counted("", True))

    def test_skipped_is_not_passed(self):
        self.assertEqual((2, 0, 1), self.counted("skipped: no model\nAll tests passed (5 assertions in 3 test cases)", True))

    def test_result_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "junit.xml"
            path.write_text("""<testsuite>
                <testcase name="a" status="run"><system-out>All tests passed (5 assertions in 3 test cases)</system-out></testcase>
                <testcase name="b" status="fail"><failure message=""/><system-out></system-out></testcase>
                <testcase name="c" status="notrun"><skipped message="Unable to find executable"/></testcase>
                <testcase name="d" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
                <testcase name="e" status="disabled"/></testsuite>""")
            counts = count_tests.count_junit(path)
        self.assertEqual((3, 3, 1), (counts.passed, counts.failed, counts.skipped))


class StageTest(unittest.TestCase):
    def run_stage(self, budget_s, *commands):
        with tempfile.TemporaryDirectory() as folder:
            stage = check.Stage("s", "fast", budget_s, [list(c) for c in commands])
            return check.run_commands(stage, Path(folder) / "log")

    def test_all_commands_must_succeed(self):
        self.assertTrue(self.run_stage(60, ["true"], ["true"])[0])
        ok, _, why = self.run_stage(60, ["true"], ["false"])
        self.assertFalse(ok)
        self.assertIn("exit status 1", why)

    def test_over_budget_fails_even_if_all_went_well(self):
        with unittest.mock.patch.object(check, "OVERRUN", 100_000):
            ok, _, why = self.run_stage(0.001, ["sleep", "0.02"])
        self.assertEqual((False, "over its budget"), (ok, why))

    def test_a_hung_stage_is_ended_with_all_that_it_started(self):
        marked = f"1234.{os.getpid()}"
        ok, _, why = self.run_stage(0.2, ["sh", "-c", f"sleep {marked} & wait"])
        self.assertFalse(ok)
        self.assertIn("ended", why)
        end = time.monotonic() + 10  # what got the signal may not have run since
        while self.runs(f"sleep\0{marked}\0".encode()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    @staticmethod
    def runs(command):
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it may end while we look
                if process.read_bytes() == command:
                    return True
        return False

    def test_the_tree_state_knows_uncommitted_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in (["git", "init", "-q"], ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"]):
                subprocess.run(command, cwd=folder, check=True)
            before = check.state_of_tree(folder)
            (Path(folder) / "new").write_text("x")
            self.assertNotEqual(before, check.state_of_tree(folder))


class BenchTest(unittest.TestCase):
    def test_the_bars_can_be_listed(self):
        listed = subprocess.run([sys.executable, "-B", SOURCE / "tools/bench/bars.py", "--list"], check=True, capture_output=True, text=True).stdout
        for name in ("memory", "thousand", "shards", "overload"):
            self.assertIn(f"\n{name} ", listed)


class TinyModelTest(unittest.TestCase):
    def test_same_bytes_each_time(self):
        model = Path(os.environ["TROUPE_TINY_GGUF"])
        python = model.parent.parent / "venv/tools/bin/python"
        with tempfile.TemporaryDirectory() as folder:
            again = Path(folder) / "again.gguf"
            subprocess.run([python, SOURCE / "tests/support/make_tiny_gguf.py", again], check=True)
            self.assertEqual(model.read_bytes(), again.read_bytes())


if __name__ == "__main__":
    unittest.main()
