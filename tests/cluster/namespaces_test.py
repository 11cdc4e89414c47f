"""Hosts that are joined by real wires: KV crosses them and nothing else carries it, and a wire that is cut, both ways or one, costs a stream a pause."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import text_of, wait_until  # noqa: E402
from namespaces import WiredCluster, why_not  # noqa: E402

TINY = os.environ.get("TROUPE_TINY_GGUF", "")
SLOW = dict(decode_step_us=20000)
BODY = {"model": "m", "prompt": "a story about one day " * 20, "max_tokens": 300, "temperature": 0, "ignore_eos": True}
LEFT_OUT = why_not()


def ready_workers(c):
    return {w["name"] for w in c.workers() if w.get("ready")}


@unittest.skipIf(LEFT_OUT, f"no network namespaces here: {LEFT_OUT}")
class Wires(unittest.TestCase):
    @unittest.skipUnless(TINY, "TROUPE_TINY_GGUF is not set")
    def test_kv_crosses_the_wire(self):
        pools = [dict(role=role, hosts=[host], engine="llama", slots=4, kv_tokens=8192) for role, host in (("prefill", "h0"), ("decode", "h1"))]
        with WiredCluster(2, pools=pools, model_path=TINY, model_lines='chat_template = "chatml"', context_tokens=4096) as c:
            c.start()
            c.wait_ready()
            before = c.network.bytes_received("h1")
            status, answer = c.post("/v1/completions", {**BODY, "prompt": "many words to carry " * 100, "max_tokens": 8}, headers={"X-Request-Id": "wired"})
            self.assertEqual(status, 200, answer)
            transfer = c.timeline("wired")["attempts"][-1]["transfer"]
            self.assertEqual(transfer["transport"], "ucx:tcp")
            self.assertGreater(transfer["bytes"], 100_000)
            self.assertGreaterEqual(c.network.bytes_received("h1") - before, transfer["bytes"])

    def survives(self, disturb, mend):
        """A stream whose decode host is disturbed in the middle is the same as one that was not, and the host is back in work once it is mended."""
        pools = [dict(role="prefill", hosts=["h0"]), dict(role="decode", hosts=["h1", "h2"], simulation=SLOW)]
        with WiredCluster(3, pools=pools) as c:
            c.start()
            c.wait_ready()
            everybody = wait_until(lambda: len(ready_workers(c)) == 3 and ready_workers(c), "three ready workers")
            status, undisturbed = c.post("/v1/completions", BODY)
            self.assertEqual(status, 200, undisturbed)
            events = c.stream("/v1/completions", BODY, headers={"X-Request-Id": "disturbed"})
            first = [next(events) for _ in range(10)]
            victim = c.timeline("disturbed")["attempts"][-1]["decode"]["worker"].rsplit("/", 1)[1].split(".")[0]
            disturb(c.network, victim)
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]", rest[-3:])
            self.assertEqual(text_of(first + rest), undisturbed["choices"][0]["text"])
            self.assertNotIn(f"/{victim}.", c.timeline("disturbed")["attempts"][-1]["decode"]["worker"])
            mend(c.network, victim)
            wait_until(lambda: ready_workers(c) == everybody, lambda: f"{victim} back in work: {c.workers()}")
            c.wait_idle()

    def test_a_cut_wire(self):
        self.survives(lambda network, host: network.cut(host), lambda network, host: network.join(host))

    def test_a_host_that_nobody_hears(self):
        self.survives(lambda network, host: network.mute(host), lambda network, host: network.unmute(host))

    def test_a_host_that_hears_nobody(self):
        self.survives(lambda network, host: network.deafen(host), lambda network, host: network.undeafen(host))

    def test_an_address_that_is_on_another_device(self):
        """UCX takes connections only on devices that it found at its start: an engine that must not miss them begins anew."""
        pools = [dict(role="prefill", hosts=["h0"]), dict(role="decode", hosts=["h1", "h2"])]
        with WiredCluster(3, pools=pools) as c:
            c.start()
            c.wait_ready()
            wait_until(lambda: len(ready_workers(c)) == 3, "three ready workers")
            for host in ("h1", "h2"):
                c.network.rename_device(host, "other0")
            asked = 0

            def kv_came():
                nonlocal asked
                asked += 1
                status, answer = c.post("/v1/completions", {**BODY, "prompt": f"{asked}: {BODY['prompt']}", "max_tokens": 8})
                self.assertEqual(status, 200, answer)
                return all(w.get("transfer_bytes") for w in c.workers() if w["role"] == "decode" and w.get("ready"))

            wait_until(kv_came, lambda: f"KV came to h1 and h2: {c.workers()}", 30)
            for host in ("h1", "h2"):
                self.assertRegex(c[host].log, f"event=engine_verdict host={host} .*verdict=hung .*network device", host)
            c.wait_idle()


if __name__ == "__main__":
    unittest.main()
