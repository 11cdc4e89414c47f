"""The admin console against real nodes: trees, books, and what it says when somebody is silent."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, WAIT_S, Cluster, Stream, wait_until  # noqa: E402

PD = [dict(name="p", role="prefill", hosts=["h0"]), dict(name="d", role="decode", hosts=["h0", "h1"], simulation=dict(decode_step_us=5000))]


def named(nodes, name):
    """The node of a tree with this name, wherever it stands."""
    for n in nodes:
        found = n if n["name"] == name else named(n["children"], name)
        if found:
            return found
    return None


class Console(unittest.TestCase):
    def test_the_tree_tells_of_a_killed_engine(self):
        with Cluster(pools=PD) as c:
            c.start()
            c.wait_ready()

            def launcher():
                [report] = c.console("tree", "h1")
                return named(report["tree"], "launcher/d/h1.0")

            before = launcher()
            pid = int(before["facts"]["pid"])
            self.assertEqual(pid, c["h1"].engine("decode/d/h1.0"))
            self.assertEqual(before["state"], "running")
            self.assertEqual(before["mailbox"], 0)
            os.kill(pid, signal.SIGKILL)
            after = wait_until(lambda: (x := launcher())["facts"]["state"] == "ready" and x["facts"]["pid"] != str(pid) and x, "another engine")
            self.assertGreater(int(after["facts"]["generation"]), int(before["facts"]["generation"]))
            # Every actor of the tree answers, with the count of its mailbox.
            def all_of(nodes):
                for n in nodes:
                    yield n
                    yield from all_of(n["children"])
            reports = c.console("tree")
            self.assertEqual(sorted(r["host"] for r in reports), ["h0", "h1"])
            for r in reports:
                for n in all_of(r["tree"]):
                    self.assertEqual((n["silent"], n["state"]), ("", "running"), n)
                    self.assertIsNotNone(n["mailbox"], n)
            self.assertTrue(named(reports[0]["tree"] + reports[1]["tree"], "gateway/h0"))

    def test_requests_and_their_ways(self):
        with Cluster(pools=PD) as c:
            c.start()
            c.wait_ready()
            stream = Stream(c, {"model": "m", "prompt": "x" * 50, "max_tokens": 300})
            [running] = c.console("requests")
            self.assertEqual((running["host"], running["request"], running["model"]), ("h0", stream.id, "m"))
            self.assertEqual(c.console("request", stream.id, host="h1")["id"], stream.id)  # any node can be asked
            self.assertEqual({w["name"] for w in c.console("workers")}, {"prefill/p/h0.0", "decode/d/h0.0", "decode/d/h1.0"})
            self.assertEqual({e["verdict"] for e in c.console("health")}, {"healthy"})
            wait_until(lambda: any(e["name"].startswith("console/h0/") for e in c.console("directory")), "a session in the directory, where it is while it lasts")
            stream.text()
            wait_until(lambda: c.console("requests") == [], "no request")
            self.assertEqual(c.console("request", "nobody", check=False)[0], 1)

    def test_books_are_zero_soon_after_engines_were_killed_under_load(self):
        with Cluster(pools=PD) as c:
            c.start()
            c.wait_ready()
            streams = [Stream(c, {"model": "m", "prompt": f"{i} " * 40, "max_tokens": 400}) for i in range(12)]
            held = c.console("books")["totals"]
            self.assertEqual((held["requests"], held["jobs"], held["leases"], held["router_leases"]), (12, 12, 12, 12))
            self.assertGreater(held["kv_tokens"], 0)
            for name in ("decode/d/h1.0", "decode/d/h0.0"):
                host = "h1" if "h1" in name else "h0"
                os.kill(c[host].engine(name), signal.SIGKILL)
                c[host].wait_for(f"event=engine_ready engine={name}", count=2)
            balance = c.console("books", "--check", check=False)
            self.assertEqual(balance[0], 0, balance[1])
            for s in streams:
                s.text()
            ended = time.monotonic()
            code, text = wait_until(lambda: (x := c.console("books", "--zero", check=False))[0] == 0 and x, lambda: c.console("books", "--zero", check=False)[1], seconds=5)
            self.assertLess(time.monotonic() - ended, 5, text)
            self.assertEqual(set(json.loads(text)["totals"].values()), {0})

    def test_orders(self):
        with Cluster(pools=PD) as c:
            c.start()
            c.wait_ready()
            stream = Stream(c, {"model": "m", "prompt": "hello", "max_tokens": 400})

            def state(engine):
                return next(e["state"] for e in c.console("directory") if e["name"] == engine)

            pid = c["h1"].engine("decode/d/h1.0")
            self.assertEqual(c.console("drain", "h1", "--within", "20s", "--move-now"), ["decode/d/h1.0  drained"])
            self.assertEqual(state("decode/d/h1.0"), "draining")
            self.assertEqual(c.console("undrain", "h1"), ["decode/d/h1.0  serving"])
            self.assertEqual(state("decode/d/h1.0"), "ready")
            self.assertEqual(c["h1"].engine("decode/d/h1.0"), pid)
            self.assertEqual(c.console("restart", "pool:d", "--within", "5s"), ["decode/d/h0.0  serving", "decode/d/h1.0  serving"])
            self.assertNotEqual(c["h1"].engine("decode/d/h1.0"), pid)
            self.assertEqual(c.console("drain", "decode/d/h1.0", "--stop"), ["decode/d/h1.0  stopped"])
            self.assertEqual(state("decode/d/h1.0"), "stopped")
            c.console("undrain", "decode/d/h1.0", host="h1")
            self.assertEqual(state("decode/d/h1.0"), "ready")
            stream.text()
            code, text = c.console("drain", "decode/nobody/h1.0", check=False)
            self.assertEqual(code, 1)
            self.assertIn("decode/nobody/h1.0", text)
            self.assertEqual(c.console("drain", "nobody", check=False)[0], 2)
            self.assertEqual(c.console("drain", "h1", "--now", check=False)[0], 2)

    def test_a_silent_host_is_named_and_the_others_answer(self):
        with Cluster(pools=PD) as c:
            c.start()
            c.wait_ready()
            c["h1"].signal(signal.SIGSTOP)
            code, text = c.console("tree", check=False)
            self.assertEqual(code, 1, text)
            self.assertIn("host h1: ", text)
            self.assertIn("node/h0", text)
            c["h1"].signal(signal.SIGCONT)

    def test_strangers_and_crowds_at_the_admin_port(self):
        with Cluster(hosts=1) as c:
            c.start()
            wait_until(lambda: c.console("tree", check=False)[0] == 0, "an admin port")
            where = ("127.0.0.1", c.admin_ports[0])
            with socket.create_connection(where, timeout=10) as s:
                s.sendall(b"GET / HTTP/1.1\r\n\r\n")
                self.assertEqual(s.recv(100), b"")
            crowd = []
            try:
                def full():
                    """Another terminal comes; whether the next one is sent away. (Of the crowd some may have been sent away, too: earlier sessions may still have been leaving.)"""
                    crowd.append(socket.create_connection(where, timeout=10))
                    return c.console("requests", check=False)[0] == 4
                wait_until(full, "a full house")
                self.assertGreaterEqual(len(crowd), 15, "sixteen may come, and one more may still have been leaving")
            finally:
                for s in crowd:
                    s.close()
            wait_until(lambda: c.console("tree", check=False)[0] == 0, "room again")

    def test_without_a_node_and_without_a_port(self):
        with Cluster(hosts=1) as c:
            self.assertEqual(c.console("tree", check=False)[0], 4)
            c.config.write_text("".join(line for line in c.config.read_text().splitlines(True) if "admin_port" not in line))
            code, text = c.console("tree", check=False)
            self.assertEqual(code, 3)
            self.assertIn("has no admin_port", text)

    def test_a_person_at_a_terminal(self):
        with Cluster(hosts=1) as c:
            c.start()
            c.wait_ready()
            ours, theirs = pty.openpty()
            state = {"XDG_STATE_HOME": str(c.folder), "TERM": "vt100"}
            p = subprocess.Popen([TROUPE, "console", "--config", str(c.config)], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **state}, start_new_session=True)
            os.close(theirs)
            try:
                seen = ""

                def until(text):
                    nonlocal seen
                    while text not in seen:
                        self.assertTrue(select.select([ours], [], [], WAIT_S)[0], seen)
                        seen += os.read(ours, 4096).decode(errors="replace")
                    seen = seen[seen.index(text) + len(text):]
                until("troupe h0> ")
                os.write(ours, b"hea\t\n")  # completed to `health`
                until("verdict")
                until("both/p0/h0.0")
                until("troupe h0> ")
                os.write(ours, b"nonsense\n")
                until("there is no command 'nonsense'")
                os.write(ours, b"quit\n")
                self.assertEqual(p.wait(WAIT_S), 0)
            finally:
                p.kill()
                p.wait()
                os.close(ours)
            history = (c.folder / "troupe" / "console_history").read_text()
            self.assertIn("nonsense", history)

    def test_line_by_line_a_script_ends_where_it_goes_wrong(self):
        with Cluster(hosts=1) as c:
            c.start()
            c.wait_ready()
            r = subprocess.run([TROUPE, "console", "--config", str(c.config)], input="health\nnonsense\ntree\n", capture_output=True, text=True, timeout=WAIT_S)
            self.assertEqual(r.returncode, 2)
            self.assertIn("verdict", r.stdout)
            self.assertNotIn("node/h0", r.stdout)
            self.assertIn("there is no command 'nonsense'", r.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
