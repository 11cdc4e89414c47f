"""Requests through a real cluster with a tiny model: prompts computed on one host and answered on another, over UCX, beside one host that does both."""

import concurrent.futures
import json
import os
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import Cluster, alive, wait_until, whole_text_of  # noqa: E402

MODEL = os.environ.get("TROUPE_TINY_GGUF", "")
LONG = " ".join(f"w{i}" for i in range(700))
APART = [dict(role="prefill", hosts=["h0"], engine="llama"), dict(role="decode", hosts=["h1"], engine="llama")]
TOGETHER = [dict(role="both", hosts=["h0"], engine="llama")]


def completion(prompt, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, **more}


def setUpModule():
    if not Path(MODEL).is_file():
        print("the tiny model is not there")
        sys.exit(77)


class OfOneCluster(unittest.TestCase):
    pools, hosts = APART, 2

    @classmethod
    def setUpClass(cls):
        cls.c = Cluster(hosts=cls.hosts, pools=cls.pools, model_path=MODEL)
        cls.addClassCleanup(cls.c.__exit__, None, None, None)
        cls.c.start()
        cls.c.wait_ready()

    def answer(self, body, name=None):
        status, got = self.c.post("/v1/completions", body, headers={"X-Request-Id": name} if name else None)
        self.assertEqual(status, 200, got)
        return got


class EqualConditions(OfOneCluster):
    """The same threads and nothing kept from earlier prompts, so that both compute the very same batches; either changes rounding, and with random weights the tokens of long answers."""

    pools = [dict(p, threads=1, prefix_reuse=False) for p in APART]

    def test_answers_are_those_of_one_host(self):
        with Cluster(hosts=1, pools=[dict(p, threads=1, prefix_reuse=False) for p in TOGETHER], model_path=MODEL) as one:
            one.start()
            one.wait_ready()
            for prompt in ("Once upon a time, there", "The house of the follower was", "apart or together " + LONG):
                body = completion(prompt, logprobs=1, max_tokens=64)
                status, expected = one.post("/v1/completions", body)
                self.assertEqual(status, 200, expected)
                got = self.answer(body)
                self.assertEqual(got["choices"], expected["choices"])
                self.assertEqual(got["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"])


class Apart(OfOneCluster):
    def test_long_prompts_are_handed_over(self):
        got = self.answer(completion("handed over " + LONG), "handed")
        attempt = self.c.timeline("handed")["attempts"][-1]
        self.assertEqual(attempt["plan"], "full", attempt)
        moved = attempt["transfer"]
        # The last token of the prompt is the decode worker's first step; the first one may be there from other prompts.
        self.assertEqual(moved["to_token"], got["usage"]["prompt_tokens"] - 1, moved)
        self.assertLessEqual(moved["from_token"], 1, moved)
        wanted = (moved["to_token"] - moved["from_token"]) * max(w.get("kv_bytes_per_token", 0) for w in self.c.workers())
        self.assertGreaterEqual(moved["bytes"], wanted)
        self.assertLess(moved["bytes"], wanted * 1.01 + 4096)
        self.assertTrue(attempt["prefill"]["worker"].startswith("prefill/"), attempt)
        self.assertTrue(attempt["decode"]["worker"].startswith("decode/"), attempt)

    def test_kept_kv_says_what_moved_kv_said(self):
        body = completion("said twice " + LONG)
        self.assertEqual(self.answer(body, "said-1")["choices"][0]["text"], self.answer(body, "said-2")["choices"][0]["text"])
        attempt = self.c.timeline("said-2")["attempts"][-1]
        self.assertEqual(attempt.get("transfer", {}).get("bytes", 0), 0, attempt)

    def test_second_turn_moves_only_the_rest(self):
        first = self.answer(completion("two turns " + LONG), "turn-1")
        said = "two turns " + LONG + first["choices"][0]["text"]
        self.answer(completion(said + LONG), "turn-2")
        one, two = (self.c.timeline(f"turn-{i}")["attempts"][-1] for i in (1, 2))
        # The router may not have heard yet of what was kept; the workers themselves know.
        self.assertIn(two["plan"], ("fromPosition", "full"), two)
        self.assertGreater(two["transfer"]["from_token"], 0.9 * one["transfer"]["to_token"], two)
        self.assertLess(two["transfer"]["bytes"], 1.5 * one["transfer"]["bytes"], two)

    def test_stream(self):
        body = completion("streamed " + LONG)
        events = list(self.c.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}}))
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 24)
        self.assertEqual(whole_text_of(events), self.answer(body)["choices"][0]["text"])

    def test_choices_and_stops(self):
        got = self.answer(completion("choices", n=2))
        self.assertEqual(sorted(c["index"] for c in got["choices"]), [0, 1])
        whole = got["choices"][0]["text"]
        stop = whole[len(whole) // 2 :][:3]
        cut = self.answer(completion("choices", stop=[stop]))["choices"][0]
        self.assertEqual(cut["text"], whole[: whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")

    def test_deadline(self):
        status, got = self.c.post("/v1/completions", completion("late " + LONG, max_tokens=4000), headers={"X-Request-Timeout-Ms": "150"})
        self.assertEqual(status, 504, got)

    def test_prompts_beyond_the_context(self):
        status, got = self.c.post("/v1/completions", completion("x" * (300 << 10)))
        self.assertEqual((status, got["error"]["code"]), (400, "context_length_exceeded"))
        status, got = self.c.post("/v1/completions", completion("x" * (9 << 20)))
        self.assertEqual((status, got["error"]["code"]), (413, "prompt_too_large"))

    def test_schema_and_logprobs(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        body = {"model": "m", "messages": [{"role": "user", "content": "say so"}], "max_tokens": 200, "temperature": 0, "logprobs": True, "top_logprobs": 2,
                "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
        status, got = self.c.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, got)
        choice = got["choices"][0]
        value = json.loads(choice["message"]["content"])
        self.assertEqual(list(value), ["ok"])
        self.assertIsInstance(value["ok"], bool)
        self.assertEqual("".join(t["token"] for t in choice["logprobs"]["content"]), choice["message"]["content"])
        for token in choice["logprobs"]["content"]:
            self.assertEqual(len(token["top_logprobs"]), 2)
            self.assertLessEqual(token["logprob"], 0)

    def test_a_client_that_leaves(self):
        events = self.c.stream("/v1/completions", completion("leaving " + LONG, max_tokens=4000))
        next(events)
        wait_until(lambda: any(w.get("running") and w["role"] == "decode" for w in self.c.workers()), "the report of a running request", 10)
        events.close()
        self.c.wait_idle(10)
        self.answer(completion("after it"))

    def test_unknown_model(self):
        self.assertEqual(self.c.post("/v1/completions", {**completion("x"), "model": "other"})[0], 404)


class Roles(OfOneCluster):
    def test_decode_computes_no_prompt_and_prefill_samples_nothing(self):
        got = [self.answer(completion(f"{i} first seen " + LONG)) for i in range(2)]
        def counts():
            return {w["role"]: w for w in self.c.workers()}
        wanted = sum(g["usage"]["prompt_tokens"] for g in got) - 100
        wait_until(lambda: counts()["prefill"].get("prefilled_tokens", 0) > wanted and counts()["decode"].get("sampled_tokens", 0) >= 48, lambda: f"reports of the work: {counts()}", 10)
        self.assertEqual(counts()["decode"]["prefilled_tokens"], 0)
        self.assertEqual(counts()["prefill"]["sampled_tokens"], 0)


class Crowds(unittest.TestCase):
    def test_more_requests_than_kv(self):
        small = [dict(pool, kv_tokens=1024, slots=16) for pool in APART]
        with Cluster(hosts=2, pools=small, model_path=MODEL, context_tokens=1024) as c:
            c.start()
            c.wait_ready()
            words = " ".join(f"w{i}" for i in range(50))
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda i: c.post("/v1/completions", completion(f"{i} {words}", max_tokens=100)), range(16)))
            for status, got in answers:
                self.assertEqual(status, 200, got)
                self.assertEqual(got["usage"]["completion_tokens"], 100)
                self.assertGreater(got["usage"]["prompt_tokens"], 100)


class Ends(unittest.TestCase):
    def test_not_ready(self):
        with Cluster(hosts=1, pools=TOGETHER, model_path="/nonexistent/model.gguf") as c:
            c.start()
            c["h0"].wait_for("event=engine_given_up")
            status, ready = c.get("/readyz")
            self.assertEqual(status, 503)
            self.assertTrue(ready["models"][0]["failed"], ready)
            status, got = c.post("/v1/completions", completion("early"))
            self.assertEqual(status, 503, got)

    def test_sigterm_lets_a_stream_end(self):
        with Cluster(hosts=1, pools=TOGETHER, model_path=MODEL) as c:
            c.start()
            c.wait_ready()
            engines = c["h0"].engines()
            events = c.stream("/v1/completions", completion("end", max_tokens=300))
            next(events)
            c["h0"].signal(signal.SIGTERM)
            self.assertEqual(list(events)[-1], "[DONE]")
            self.assertEqual(c["h0"].wait(), 0)
            wait_until(lambda: not any(alive(p) for p in engines), "the end of the engines", 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
