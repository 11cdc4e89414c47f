"""Prompts computed on one host and answered on another, with real processes and UCX; what clients see when a part of that dies. Engines are simulated: their text is a function of
the prefix alone, so an answer that was interrupted must be the same, byte by byte, as one that was not."""

import http.client
import json
import os
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import Cluster, wait_until  # noqa: E402

PACE = dict(decode_step_us=10000)


def pd(decode_hosts=("h1",), prefill_hosts=("h0",), hosts=2, **more):
    return Cluster(hosts=hosts, pools=[
        dict(role="prefill", hosts=list(prefill_hosts), slots=16, kv_tokens=65536),
        dict(role="decode", hosts=list(decode_hosts), slots=16, kv_tokens=65536, simulation=PACE)], **more)


def body(prompt="Tell me a long story. " * 20, tokens=150):
    return {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": 1, "ignore_eos": True}


def text_of(events):
    """The text of a whole stream; fails on anything but an orderly end."""
    events = list(events)
    if events[-1] != "[DONE]":
        raise AssertionError(f"the stream ended with {events[-1]}")
    return "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"])


class Stream(threading.Thread):
    """A stream in the background; `text` after `join`."""

    count = 0

    def __init__(self, cluster, request):
        super().__init__()
        Stream.count += 1
        self.id = f"stream-{Stream.count}"
        self.cluster = cluster
        self.events = cluster.stream("/v1/completions", request, headers={"X-Request-Id": self.id})
        self.seen = [next(self.events)]
        self.failure = None
        self.start()

    def run(self):
        try:
            for e in self.events:
                self.seen.append(e)
        except Exception as e:  # noqa: BLE001, shown by the test
            self.failure = e

    def text(self):
        self.join(60)
        if self.failure or self.is_alive():
            raise AssertionError(f"the stream broke: {self.failure or 'it hangs'}")
        return text_of(self.seen)

    def attempts(self):
        return len(self.cluster.get(f"/debug/requests/{self.id}")[1]["attempts"])


class TwoHosts(unittest.TestCase):
    def test_kv_travels_from_prefill_to_decode(self):
        with pd() as c:
            c.start()
            c.wait_ready()
            request = body(tokens=20)
            status, answer = c.post("/v1/completions", request, headers={"X-Request-Id": "pd-1"})
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["usage"]["completion_tokens"], 20)
            status, timeline = c.get("/debug/requests/pd-1")
            self.assertEqual(status, 200)
            attempt = timeline["attempts"][-1]
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


class Losses(unittest.TestCase):
    def reference(self, c, request):
        status, answer = c.post("/v1/completions", request)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def test_decode_engine_killed_in_mid_stream(self):
        with pd(decode_hosts=("h0", "h1")) as c:
            c.start()
            c.wait_ready()
            for host in ("h0", "h1"):
                c[host].wait_for("event=engine_ready engine=decode/p1/")
            request = body()
            expected = self.reference(c, request)
            streams = [Stream(c, request) for _ in range(4)]
            time.sleep(0.3)
            os.kill(self.engine(c["h1"], "decode/p1/h1.0"), signal.SIGKILL)
            for s in streams:
                self.assertEqual(s.text(), expected)
            self.assertGreater(max(s.attempts() for s in streams), 1, "nobody was interrupted")

    def test_decode_engines_beside_prefill_die_in_mid_transfer(self):
        pools = [dict(role="prefill", hosts=["h0"], slots=16, kv_tokens=65536),
                 dict(role="decode", hosts=["h0"], engines_per_host=2, slots=16, kv_tokens=65536, simulation=PACE)]
        with Cluster(hosts=1, pools=pools) as c:
            c.start()
            c["h0"].wait_for("event=engine_ready", count=3)
            c.wait_ready()
            for index in range(4):  # more often than there are piece buffers
                c["h0"].wait_for("event=engine_ready engine=decode/", count=2 + index)
                requests = [body(prompt=f"round {index}, question {n}: " + "some words to move " * 300, tokens=30) for n in range(8)]
                answers = {}
                threads = [threading.Thread(target=lambda n=n, r=r: answers.update({n: c.post("/v1/completions", r)})) for n, r in enumerate(requests)]
                for t in threads:
                    t.start()
                time.sleep(0.1 + 0.05 * index)
                os.kill(self.engine(c["h0"], f"decode/p1/h0.{index % 2}"), signal.SIGKILL)
                for t in threads:
                    t.join(60)
                for n, request in enumerate(requests):
                    status, got = answers[n]
                    self.assertEqual(status, 200, got)
                    self.assertEqual(got["choices"][0]["text"], self.reference(c, request))
            wait_until(lambda: all(w["idle"] for w in c.get("/debug/workers")[1]["workers"] if w.get("ready")), lambda: f"all idle: {c.get('/debug/workers')}")

    def test_the_only_decode_engine_comes_back(self):
        with pd() as c:
            c.start()
            c.wait_ready()
            request = body()
            expected = self.reference(c, request)
            s = Stream(c, request)
            os.kill(self.engine(c["h1"], "decode/p1/h1.0"), signal.SIGKILL)
            self.assertEqual(s.text(), expected)
            self.assertGreater(s.attempts(), 1)

    def test_host_killed_in_mid_stream(self):
        with pd(decode_hosts=("h1", "h2"), hosts=3) as c:
            c.start()
            c.wait_ready()
            for host in ("h1", "h2"):
                c[host].wait_for("event=engine_ready")
            wait_until(lambda: c["h0"].log.count("event=peer_up") == 2, "both peers")
            request = body(tokens=300)
            expected = self.reference(c, request)
            streams = [Stream(c, request) for _ in range(4)]
            time.sleep(0.3)
            c["h1"].signal(signal.SIGKILL)
            for s in streams:
                self.assertEqual(s.text(), expected)
            self.assertGreater(max(s.attempts() for s in streams), 1, "nobody was interrupted")

    def test_prefill_engine_killed_under_load(self):
        with pd(prefill_hosts=("h0", "h1")) as c:
            c.start()
            c.wait_ready()
            for host in ("h0", "h1"):
                c[host].wait_for("event=engine_ready engine=prefill/p0/")
            request = body(tokens=30)
            expected = self.reference(c, request)
            results, failures = [], []

            def client():
                try:
                    for _ in range(8):
                        results.append(text_of(c.stream("/v1/completions", request)))
                except Exception as e:  # noqa: BLE001
                    failures.append(e)

            clients = [threading.Thread(target=client) for _ in range(4)]
            for t in clients:
                t.start()
            time.sleep(0.4)
            os.kill(self.engine(c["h0"], "prefill/p0/h0.0"), signal.SIGKILL)
            for t in clients:
                t.join(90)
            self.assertEqual(failures, [])
            self.assertEqual(len(results), 32)
            self.assertEqual(set(results), {expected})

    @staticmethod
    def engine(node, name):
        for pid in node.engines():
            if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"{node.host} has no process for {name}")


class Clients(unittest.TestCase):
    def test_a_client_that_goes_away_leaves_nothing_behind(self):
        with pd() as c:
            c.start()
            c.wait_ready()
            def workers():
                return c.get("/debug/workers")[1]["workers"]

            # As many as there are slots, each for 40 s: were a single one to stay, it would be seen.
            for _ in range(16):
                connection = http.client.HTTPConnection("127.0.0.1", c.gateway_port, timeout=30)
                connection.request("POST", "/v1/completions", json.dumps({**body(tokens=4000), "stream": True}), {"Content-Type": "application/json"})
                connection.getresponse().readline()
                connection.close()
            self.assertEqual({w["role"] for w in workers()}, {"prefill", "decode"})
            wait_until(lambda: all(w["idle"] and w["running"] == 0 and w["kv_used_tokens"] == 0 for w in workers()), lambda: f"idle workers: {workers()}", 15)
            began = time.monotonic()
            streams = [Stream(c, body(tokens=10)) for _ in range(16)]
            for s in streams:
                s.text()
            self.assertLess(time.monotonic() - began, 15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
