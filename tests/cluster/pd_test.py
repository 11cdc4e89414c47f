"""Prompts computed on one host and answered on another, with real processes and UCX, and simulated engines. What is lost on the way is in faults_test.py."""

import http.client
import json
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import Cluster, Stream  # noqa: E402

PACE = dict(decode_step_us=10000)


def pd():
    return Cluster(hosts=2, pools=[
        dict(role="prefill", hosts=["h0"], slots=16, kv_tokens=65536),
        dict(role="decode", hosts=["h1"], slots=16, kv_tokens=65536, simulation=PACE)])


def body(prompt="Tell me a long story. " * 20, tokens=150):
    return {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": 1, "ignore_eos": True}


class TwoHosts(unittest.TestCase):
    def test_kv_travels_from_prefill_to_decode(self):
        with pd() as c:
            c.start()
            c.wait_ready()
            request = body(tokens=20)
            status, answer = c.post("/v1/completions", request, headers={"X-Request-Id": "pd-1"})
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["usage"]["completion_tokens"], 20)
            attempt = c.timeline("pd-1")["attempts"][-1]
            self.assertEqual(attempt["plan"], "full")
            self.assertEqual(attempt["prefill"]["worker"], "prefill/p0/h0.0")
            self.assertEqual(attempt["decode"]["worker"], "decode/p1/h1.0")
            self.assertGreater(attempt["transfer"]["bytes"], 0)

    def test_either_start_order(self):
        for order in (["h0", "h1"], ["h1", "h0"]):
            with self.subTest(order=order), pd() as c:
                c.start(order[0])
                time.sleep(0.5)
                c.start(order[1])
                c.wait_ready()
                status, answer = c.post("/v1/completions", body(tokens=5))
                self.assertEqual(status, 200, answer)

    def test_without_decode_503_with_a_reason(self):
        with pd() as c:
            c.start("h0")
            c["h0"].wait_for("event=engine_ready")
            began = time.monotonic()
            status, answer = c.post("/v1/completions", body(tokens=5))
            self.assertEqual(status, 503, answer)
            self.assertTrue(answer["error"]["message"])
            self.assertLess(time.monotonic() - began, 10)


class Clients(unittest.TestCase):
    def test_a_client_that_goes_away_leaves_nothing_behind(self):
        with pd() as c:
            c.start()
            c.wait_ready()
            # As many as there are slots, each for 40 s: were a single one to stay, it would be seen.
            for _ in range(16):
                connection = http.client.HTTPConnection("127.0.0.1", c.gateway_port, timeout=30)
                connection.request("POST", "/v1/completions", json.dumps({**body(tokens=4000), "stream": True}), {"Content-Type": "application/json"})
                connection.getresponse().readline()
                connection.close()
            self.assertEqual({w["role"] for w in c.workers()}, {"prefill", "decode"})
            c.wait_idle(15)
            began = time.monotonic()
            streams = [Stream(c, body(tokens=10)) for _ in range(16)]
            for s in streams:
                s.text()
            self.assertLess(time.monotonic() - began, 15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
