"""The control host in real clusters: which router shard has which keys, what it leaves on its disk, and what becomes of it all without it.

How it can fail: an assignment that the disk does not have, or a term that is taken twice; a lost shard that keeps its keys; a cluster that waits for its control host; a damaged or foreign file that is used, or written over; an error that does not say where.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, WAIT_S, Cluster, wait_until  # noqa: E402

POOLS = [dict(name="p", role="both", hosts=["h0", "h1", "h2"])]
# router/0 is on h0.
EXTRA = '\n[[router]]\nhost = "h1"\n\n[[router]]\nhost = "h2"\n\n[control]\nhost = "h1"\nstate = "control.db"\ninterval = "1s"\n'


class Control(unittest.TestCase):
    def seen(self, c):
        """What the hosts that answer know of shards."""
        r = subprocess.run([TROUPE, "console", "--config", str(c.config), "--host", "h0", "--json", "shards"], capture_output=True, text=True, timeout=WAIT_S, stdin=subprocess.DEVNULL)
        return json.loads(r.stdout) if r.stdout else None

    def until(self, c, true, what):
        return wait_until(lambda: (s := self.seen(c)) and true(s) and s, lambda: f"{what}: {self.seen(c)}")

    def parts(self, shards):
        return {s["shard"]: float(s["part"].rstrip("%")) for s in shards["shards"]}

    def record(self, c):
        """What the disk has; of a node that has ended."""
        with sqlite3.connect(f"file:{c.folder}/control.db?mode=ro", uri=True) as db:
            return db.execute("SELECT cluster, term, length(assignment) FROM control").fetchall()

    def test_terms_and_lost_shards(self):
        with Cluster(hosts=3, pools=POOLS, extra=EXTRA) as c:
            c.start()
            c.wait_ready()
            shards = self.until(c, lambda s: list(s["go_by"].values()) == ["1.1"] * 3, "assignment 1.1 at all hosts")
            self.assertEqual(shards["control"]["host"], "h1")
            self.assertEqual(shards["problems"], [])
            for part in self.parts(shards).values():
                self.assertAlmostEqual(part, 33.3, delta=0.2)

            # A lost shard's keys go to the others; requests are served all along.
            c["h2"].destroy()
            shards = self.until(c, lambda s: self.parts(s)["router/2"] == 0, "nothing for router/2")
            self.assertAlmostEqual(self.parts(shards)["router/0"], 50, delta=5)
            self.assertEqual(c.post("/v1/completions", {"model": "m", "prompt": "x" * 2000, "max_tokens": 3})[0], 200)

            # Without its control host the cluster goes on; the next incarnation takes the next term.
            c["h1"].signal(signal.SIGKILL)
            c["h1"].wait()
            [(cluster, term, length)] = self.record(c)
            self.assertEqual((cluster, term), ("test", 1))
            self.assertGreater(length, 1000)
            for i in range(5):
                self.assertEqual(c.post("/v1/completions", {"model": "m", "prompt": f"{i}" * 2000, "max_tokens": 3})[0], 200)
            c.start("h1", "h2")
            c.wait_ready()
            self.until(c, lambda s: s["control"] and s["control"]["made"].startswith("2.") and list(s["go_by"].values()) == [s["control"]["made"]] * 3, "term 2 everywhere")
            for host in c.hosts:
                self.assertEqual(c[host].stop(), 0)
            self.assertEqual(self.record(c)[0][1], 2)

    def test_what_the_node_says_of_a_state_that_it_cannot_use(self):
        with Cluster(hosts=3, pools=POOLS, extra=EXTRA) as c:
            state = c.folder / "control.db"
            line = next(i for i, text in enumerate(c.config.read_text().splitlines(), 1) if text.startswith("state"))

            def refused(code, *parts):
                r = subprocess.run([TROUPE, "node", "--config", str(c.config), "--host", "h1"], capture_output=True, text=True, timeout=WAIT_S)
                self.assertEqual(r.returncode, code, r.stdout + r.stderr)
                for part in (f"{c.config}:{line}:9: ", str(state), *parts):
                    self.assertIn(part, r.stderr)

            state.write_text("x" * 5000)
            refused(3, "damaged or no SQLite file")
            self.assertEqual(state.read_text(), "x" * 5000)
            state.unlink()
            state.mkdir()
            refused(3, "cannot be opened")
            state.rmdir()
            with sqlite3.connect(state) as db:
                db.execute("CREATE TABLE theirs (x)")
            refused(3, "another program's")
            state.unlink()
            # Somebody else has it: another start may help.
            c.start("h1").wait_for("event=node_started")
            c["h1"].stop()
            with sqlite3.connect(state) as db:
                db.execute("BEGIN EXCLUSIVE")
                refused(4, "another process has it")


if __name__ == "__main__":
    unittest.main(verbosity=2)
