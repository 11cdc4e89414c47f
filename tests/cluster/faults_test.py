"""What real clusters do when workers die in the middle of requests, when clusters are mixed up, and when clients flood them or speak bad HTTP."""

import concurrent.futures
import os
import signal
import socket
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import Cluster, wait_until  # noqa: E402

BODY = {"model": "m", "prompt": "a story about one day " * 20, "max_tokens": 100, "temperature": 0, "ignore_eos": True}
SLOW = dict(decode_step_us=20000)


def text_of(events):
    return "".join(e["choices"][0]["text"] for e in events if isinstance(e, dict) and e.get("choices"))


def engines_named(node, word):
    """Pids of a node's engines whose command line has `word`."""
    return [p for p in node.engines() if word in Path(f"/proc/{p}/cmdline").read_bytes().decode()]


class Deaths(unittest.TestCase):
    def undisturbed(self, c):
        status, got = c.post("/v1/completions", BODY)
        self.assertEqual(status, 200, got)
        return got["choices"][0]["text"]

    def test_decode_worker_in_mid_stream(self):
        pools = [dict(role="both", hosts=["h0", "h1"], simulation=SLOW)]
        with Cluster(hosts=2, pools=pools) as c:
            c.start()
            c.wait_ready()
            wait_until(lambda: sum(bool(w.get("ready")) for w in c.get("/debug/workers")[1]["workers"]) == 2, "two ready workers")
            expected = self.undisturbed(c)
            events = c.stream("/v1/completions", BODY, headers={"X-Request-Id": "killed"})
            first = [next(events) for _ in range(10)]
            busy = wait_until(lambda: [w["host"] for w in c.get("/debug/workers")[1]["workers"] if w.get("running")], "a running worker")[0]
            os.kill(c[busy].engines()[0], signal.SIGKILL)
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]", rest[-3:])
            self.assertEqual(text_of(first + rest), expected)
            self.assertGreater(len(c.get("/debug/requests/killed")[1]["attempts"]), 1)

    def test_prefill_worker_in_mid_prefill(self):
        pools = [dict(role="prefill", hosts=["h0"], engines_per_host=2, simulation=dict(prefill_tokens_per_second=2000)), dict(role="decode", hosts=["h1"])]
        with Cluster(hosts=2, pools=pools) as c:
            c.start()
            c["h0"].wait_for("event=engine_ready", count=2)
            c.wait_ready()
            body = {**BODY, "prompt": "word " * 1000}
            got = []
            asking = threading.Thread(target=lambda: got.append(c.post("/v1/completions", body)))
            asking.start()
            busy = wait_until(lambda: [w["name"] for w in c.get("/debug/workers")[1]["workers"] if w.get("running") and w["role"] == "prefill"], "a running prefill worker")[0]
            os.kill(engines_named(c["h0"], busy)[0], signal.SIGKILL)
            asking.join(60)
            self.assertEqual(got[0][0], 200, got)
            again = c.post("/v1/completions", body)[1]
            self.assertEqual(got[0][1]["choices"][0]["text"], again["choices"][0]["text"])


    def test_decode_worker_with_imported_kv(self):
        # The tiny model: real KV in flight when its receiver dies; the client gets one whole answer all the same.
        model = os.environ.get("TROUPE_TINY_GGUF", "")
        if not Path(model).is_file():
            self.skipTest("the tiny model is not there")
        pools = [dict(role="prefill", hosts=["h0"], engine="llama"), dict(role="decode", hosts=["h1"], engines_per_host=2, engine="llama")]
        with Cluster(hosts=2, pools=pools, model_path=model) as c:
            c.start()
            c["h1"].wait_for("event=engine_ready .*model=", count=2)
            c.wait_ready()
            body = {**BODY, "prompt": " ".join(f"w{i}" for i in range(300)), "max_tokens": 5000}
            events = c.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}}, headers={"X-Request-Id": "moved"})
            first = [next(events) for _ in range(5)]
            busy = wait_until(lambda: [w["name"] for w in c.get("/debug/workers")[1]["workers"] if w.get("running") and w["role"] == "decode"], "a running decode worker")[0]
            os.kill(engines_named(c["h1"], busy)[0], signal.SIGKILL)
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]", rest[-3:])
            self.assertEqual(rest[-2]["usage"]["completion_tokens"], 5000)
            timeline = c.get("/debug/requests/moved")[1]
            self.assertGreater(len(timeline["attempts"]), 1, timeline)
            self.assertTrue(text_of(first + rest))

    def test_the_only_worker(self):
        with Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], simulation=SLOW)]) as c:
            c.start()
            c.wait_ready()
            expected = self.undisturbed(c)
            events = c.stream("/v1/completions", BODY)
            first = [next(events) for _ in range(5)]
            os.kill(c["h0"].engines()[0], signal.SIGKILL)
            rest = list(events)
            # Either its successor goes on, with the same text, or the stream says that it failed; it never just stops.
            if rest[-1] == "[DONE]":
                self.assertEqual(text_of(first + rest), expected)
            else:
                self.assertIn("error", rest[-1], rest[-3:])
                self.assertTrue(expected.startswith(text_of(first + rest)))
            c.wait_ready()
            self.assertEqual(self.undisturbed(c), expected)


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], slots=4, simulation=dict(decode_step_us=1000))])
        cls.addClassCleanup(cls.c.__exit__, None, None, None)
        cls.c.start()
        cls.c.wait_ready()

    def works(self):
        status, got = self.c.post("/v1/completions", {**BODY, "max_tokens": 4})
        self.assertEqual(status, 200, got)

    def test_a_flood_is_answered(self):
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(lambda i: self.c.post("/v1/completions", {**BODY, "prompt": f"{i} small", "max_tokens": 4}), range(200)))
        statuses = [status for status, _ in answers]
        self.assertLessEqual(set(statuses), {200, 429, 503}, statuses)
        self.assertIn(200, statuses)
        self.works()

    def test_malformed_http(self):
        body = b'{"model": "m"'
        for text in (b"nonsense\r\n\r\n", b"GET /readyz HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\x16\x03\x01\x00\xff" * 8 + b"\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body):
            with socket.create_connection(("127.0.0.1", self.c.gateway_port), 10) as s:
                s.sendall(text)
                got = s.recv(65536)
                self.assertTrue(got == b"" or got.split(b" ", 2)[1].startswith(b"4") or got.split(b" ", 2)[1] == b"505", (text, got))
        self.works()

    def test_clients_that_leave(self):
        def workers():
            return self.c.get("/debug/workers")[1]["workers"]
        events = self.c.stream("/v1/completions", {**BODY, "max_tokens": 4000})
        next(events)
        wait_until(lambda: any(w.get("running") for w in workers()), "the report of a running request", 10)
        events.close()
        wait_until(lambda: all(w.get("running") == 0 and w.get("kv_used_tokens") == 0 for w in workers()), lambda: f"idle workers: {workers()}", 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
