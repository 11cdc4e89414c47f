#!/usr/bin/env python3
"""Nodes that are told to stop while others take over what they do."""

import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, Stream, wait_until  # noqa: E402

SLOW = {"decode_step_us": 20_000, "prefill_tokens_per_second": 20_000}
APART = dict(hosts=3, pools=[
    dict(role="prefill", hosts=["h0"], simulation=SLOW),
    dict(role="decode", hosts=["h1", "h2"], slots=8, simulation=SLOW),
])
BOTH = dict(hosts=3, pools=[dict(role="both", hosts=["h1", "h2"], slots=8, simulation=SLOW)])


def body(prompt="The longest river in the world is " * 20, tokens=300, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, **more}


def begun(stream, events):
    """Waits until the client has so many events."""
    wait_until(lambda: len(stream.seen) >= events, f"{events} events of {stream.id}")


class Moves(unittest.TestCase):
    def workers(self, c):
        return {w["name"]: w for w in c.get("/debug/workers")[1]["workers"]}

    def check_moved(self, layout):
        with Cluster(**layout) as c:
            c.start()
            c.wait_ready()
            expected = c.post("/v1/completions", body())[1]["choices"][0]["text"]
            before = self.workers(c)
            streams = [Stream(c, body()) for _ in range(4)]
            for s in streams:
                begun(s, 10)
            homes = {s.id: s.attempts()[-1]["decode"]["worker"] for s in streams}
            leaving = homes[streams[0].id].rsplit("/", 1)[1].split(".")[0]
            stays = "h2" if leaving == "h1" else "h1"
            c[leaving].signal(signal.SIGTERM)
            # Long before its streams would have ended by themselves.
            self.assertEqual(c[leaving].wait(6), 0, c[leaving].log)
            for s in streams:
                self.assertEqual(s.text(), expected)
            after = self.workers(c)
            moved = 0
            for s in streams:
                attempts = s.attempts()
                if f"/{leaving}." not in homes[s.id]:
                    self.assertEqual(len(attempts), 1)
                    continue
                moved += 1
                self.assertEqual([a["plan"] for a in attempts][1:], ["move"], attempts)
                self.assertTrue(attempts[0]["moved"])
                move = attempts[1]
                self.assertEqual(move["prefill"]["worker"], homes[s.id])
                # All that went over was there: no token of the prompt, or of the answer, was computed again.
                self.assertEqual(move["prefill"]["cached_tokens"], move["transfer"]["to_token"])
                self.assertGreater(move["transfer"]["to_token"], len(body()["prompt"]))
                self.assertIn(f"/{stays}.", move["decode"]["worker"])
            self.assertGreater(moved, 0)
            for name, w in after.items():
                if f"/{stays}." in name and "decode" in name:
                    self.assertEqual(w["prefilled_tokens"], before[name]["prefilled_tokens"])

    def test_streams_of_a_decode_engine_move_with_their_kv(self):
        self.check_moved(APART)

    def test_streams_of_an_engine_of_role_both_move_too(self):
        self.check_moved(BOTH)

    def test_several_choices_are_computed_again_elsewhere(self):
        with Cluster(**APART, extra='\n[limits]\ndrain_timeout = "1s"\n') as c:
            c.start()
            c.wait_ready()
            wish = body(n=2, tokens=200)
            expected = [x["text"] for x in c.post("/v1/completions", wish)[1]["choices"]]
            s = Stream(c, wish)
            begun(s, 10)
            leaving = s.attempts()[-1]["decode"]["worker"].rsplit("/", 1)[1].split(".")[0]
            self.assertEqual(c[leaving].stop(), 0)
            texts = ["", ""]
            s.text()
            for e in s.seen:
                if isinstance(e, dict) and e.get("choices"):
                    texts[e["choices"][0]["index"]] += e["choices"][0]["text"]
            self.assertEqual(texts, expected)


class Notice(unittest.TestCase):
    ONE = dict(hosts=1, pools=[dict(role="both", hosts=["h0"])])

    def test_readyz_says_no_while_requests_are_still_served(self):
        with Cluster(**self.ONE, extra='\n[limits]\ndrain_notice = "4s"\n') as c:
            c.start()
            c.wait_ready()
            c["h0"].signal(signal.SIGTERM)
            wait_until(lambda: c.get("/readyz")[0] == 503, "readyz says no", 2)
            self.assertTrue(c.get("/readyz")[1]["draining"])
            self.assertEqual(c.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 4})[0], 200)
            self.assertIsNone(c["h0"].process.poll())
            self.assertEqual(c["h0"].wait(), 0)

    def test_a_second_signal_ends_the_notice_and_not_the_streams(self):
        with Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], simulation=SLOW)], extra='\n[limits]\ndrain_notice = "60s"\n') as c:
            c.start()
            c.wait_ready()
            s = Stream(c, body(prompt="x", tokens=100))
            begun(s, 5)
            c["h0"].signal(signal.SIGTERM)
            c["h0"].wait_for("another signal")
            c["h0"].signal(signal.SIGTERM)
            s.text()
            self.assertEqual(c["h0"].wait(20), 0)


if __name__ == "__main__":
    unittest.main()
