"""What a request does that crashes whatever runs it: it is found by what engines were at when they died, tried alone, and ended; nobody else's stream is."""

import json
import os
import re
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import Cluster, Stream, wait_until  # noqa: E402

BODY = {"model": "m", "prompt": "a story about one day " * 20, "max_tokens": 100, "temperature": 0, "ignore_eos": True}
SLOW = dict(decode_step_us=20000)


def pool(role, *hosts, **more):
    return dict(role=role, hosts=list(hosts), slots=16, kv_tokens=65536, **more)


class Poison(unittest.TestCase):
    POISON = {**BODY, "prompt": "please do crash-now for me", "max_tokens": 50}

    def ask(self, c, body):
        """Status and code of an answer, or of the error event that ends it."""
        connection = c.connection(60)
        try:
            connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            codes = re.findall(r'"code":\s*"([a-z_]+)"', text)
            return response.status, codes[-1] if codes else None
        finally:
            connection.close()

    def deaths(self, c):
        return sum(len(re.findall("event=engine_crashed", node.log)) for node in c.nodes.values())

    def one_among_many(self, pools, engines):
        with Cluster(hosts=2, pools=pools) as c:
            c.start()
            c.wait_ready()
            wait_until(lambda: sum(bool(w.get("ready")) for w in c.workers()) == engines, f"{engines} ready workers")
            bodies = [{**BODY, "prompt": f"story number {n} " + "of one day " * 15, "max_tokens": 250} for n in range(24)]
            streams = [Stream(c, body) for body in bodies]
            # The client hears of it as its own fault, whether it has begun to read or not.
            status, code = self.ask(c, self.POISON)
            self.assertIn(status, (200, 500))
            self.assertEqual(code, "request_crashes_engine")
            for s in streams:
                self.assertTrue(s.text())
            died = self.deaths(c)
            self.assertGreaterEqual(died, 2, "it was not tried alone")
            self.assertLessEqual(died, 3)
            self.assertTrue(any(len(s.attempts()) > 1 for s in streams), "no innocent was near")
            # Once known, it is refused at the door; what is innocent is answered, byte by byte as before.
            self.assertEqual(self.ask(c, self.POISON), (500, "request_crashes_engine"))
            self.assertEqual(self.deaths(c), died)
            wait_until(lambda: sum(bool(w.get("ready")) for w in c.workers()) == engines, "all engines again")
            for body, s in list(zip(bodies, streams))[:4]:
                status, got = c.post("/v1/completions", body)
                self.assertEqual(status, 200, got)
                self.assertEqual(got["choices"][0]["text"], s.text())
            c.wait_idle()

    def test_among_streams_of_engines_that_do_both(self):
        self.one_among_many([pool("both", "h0", "h1", simulation=dict(decode_step_us=10000, crash_on="crash-now"))], 2)

    def test_at_prefill(self):
        pools = [pool("prefill", "h0", "h1", simulation=dict(prefill_tokens_per_second=20000, crash_on="crash-now")), pool("decode", "h0", "h1", simulation=dict(decode_step_us=10000))]
        with Cluster(hosts=2, pools=pools) as c:
            c.start()
            wait_until(lambda: c.ready() and sum(bool(w.get("ready")) for w in c.workers()) == 4, "4 ready workers")
            streams = [Stream(c, {**BODY, "prompt": f"{n} " + "of one day " * 15, "max_tokens": 100}) for n in range(8)]
            status, code = self.ask(c, self.POISON)
            self.assertEqual(code, "request_crashes_engine", status)
            for s in streams:
                self.assertTrue(s.text())
            self.assertIn(self.deaths(c), (2, 3))
            c.wait_idle()

    def test_engines_that_are_killed_convict_nobody(self):
        with Cluster(hosts=1, pools=[pool("both", "h0", simulation=SLOW)]) as c:
            c.start()
            c.wait_ready()
            stream = Stream(c, {**BODY, "max_tokens": 800})
            for n in range(3):
                wait_until(lambda: any(w.get("running") for w in c.workers()), "a running request")
                os.kill(c["h0"].engine("both/p0/h0.0"), signal.SIGKILL)
                c["h0"].wait_for("event=engine_ready engine=both", count=n + 2)
            self.assertTrue(stream.text())
            self.assertGreaterEqual(len(stream.attempts()), 4)
            self.assertEqual(self.deaths(c), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
