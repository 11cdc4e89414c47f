"""Engines as child processes of a node: start, crash, hang, bad models, orderly ends, and no orphans."""

import os
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import Cluster, alive, wait_until  # noqa: E402

ONE = dict(hosts=1, pools=[dict(role="both", hosts=["h0"])])
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


def one_engine(cluster):
    return wait_until(lambda: cluster["h0"].engines(), "an engine process")[0]


class Engines(unittest.TestCase):
    def test_ready_and_told_so(self):
        with Cluster(**ONE) as c:
            c.start()
            c["h0"].wait_for(r"(?m)^engine both/p0/h0\.0 is ready: model m, ")
            c.wait_ready()
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 200, body)

    def test_crash_is_followed_by_a_restart(self):
        with Cluster(**ONE) as c:
            c.start()
            c.wait_ready()
            first = one_engine(c)
            os.kill(first, signal.SIGKILL)
            c["h0"].wait_for("event=engine_ended engine=both/p0/h0.0 .*signal 9", seconds=5)
            c["h0"].wait_for("event=engine_ready engine=both/p0/h0.0", count=2)
            self.assertNotIn(first, c["h0"].engines())
            c.wait_ready()
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 200, body)

    def test_no_library_answers_for_a_crash(self):
        # UCX would write a backtrace, and nobody would say which of the engine's threads it was.
        with Cluster(**ONE) as c:
            c.start()
            c.wait_ready()
            status = Path(f"/proc/{c['h0'].pid}/status").read_text()
            caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
            for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
                self.assertFalse(caught >> (number - 1) & 1, number)
            os.kill(one_engine(c), signal.SIGILL)
            c["h0"].wait_for("event=engine_ended engine=both/p0/h0.0 .*signal 4", seconds=5)
            self.assertNotIn("backtrace", c["h0"].log)

    def test_no_crash_loop_without_a_limit(self):
        with Cluster(**ONE, extra='\n[health]\nrestart_intensity = 2\nrestart_backoff_min = "50ms"\nrestart_backoff_max = "50ms"\n') as c:
            c.start()
            for count in range(1, 4):
                c["h0"].wait_for("event=engine_ready", count=count)
                os.kill(one_engine(c), signal.SIGKILL)
                c["h0"].wait_for("event=engine_ended", count=count)
            c["h0"].wait_for("event=engine_given_up engine=both/p0/h0.0")
            time.sleep(0.5)
            self.assertEqual(c["h0"].engines(), [])
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 503, body)
            self.assertEqual(c["h0"].stop(), 0)

    def test_resources_are_those_of_the_cluster_file(self):
        cpu = min(os.sched_getaffinity(0))
        with Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], cpus=[str(cpu)], memory_limit="2GiB")]) as c:
            c.start()
            c.wait_ready()
            pid = one_engine(c)
            self.assertEqual(os.sched_getaffinity(pid), {cpu})
            limits = Path(f"/proc/{pid}/limits").read_text()
            self.assertRegex(limits, r"Max data size +2147483648 +2147483648 ")
            self.assertRegex(limits, r"Max core file size +0 +0 ")
            # The node itself keeps what it has.
            self.assertEqual(os.sched_getaffinity(c["h0"].pid), os.sched_getaffinity(0))
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 200, body)

    def test_cpus_that_the_machine_lacks(self):
        missing = max(os.sched_getaffinity(0)) + 1
        with Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], cpus=[f"0-{missing}"])]) as c:
            node = c.start()
            self.assertEqual(node.wait(), 3)
            line = next(n for n, text in enumerate(c.config.read_text().splitlines(), 1) if text.startswith("cpus"))
            self.assertRegex(node.log, rf"cluster\.toml:{line}:\d+: the cpus .*{missing}.* of pool \"p0\" are not there")

    def test_a_device_that_is_missing_is_no_reason_to_try_again(self):
        model = os.environ.get("TROUPE_TINY_GGUF", "")
        if not Path(model).is_file():
            self.skipTest("the tiny model is not there")
        if Path("/dev/nvidia0").exists():
            self.skipTest("there may be a GPU")
        with Cluster(hosts=1, pools=[dict(role="both", hosts=["h0"], engine="llama", gpu_layers=4)], model_path=model) as c:
            c.start()
            c["h0"].wait_for("event=engine_given_up engine=both/p0/h0.0 .*gpu_layers")
            time.sleep(0.5)
            self.assertEqual(c["h0"].log.count("event=engine_started"), 1)
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 503, body)
            self.assertIn("GPU", body["error"]["message"])

    def test_frozen_engine_is_replaced(self):
        with Cluster(**ONE) as c:
            c.start()
            c.wait_ready()
            first = one_engine(c)
            os.kill(first, signal.SIGSTOP)
            c["h0"].wait_for("event=engine_ready engine=both/p0/h0.0", count=2, seconds=60)
            self.assertFalse(alive(first))


    def test_hanging_engine_is_replaced_and_its_stream_goes_on(self):
        pace = dict(decode_step_us=10000)
        pools = [dict(name="bad", role="both", hosts=["h0"], simulation=dict(pace, fault="hang", fault_probability_per_step=0.02)), dict(name="good", role="both", hosts=["h0"], simulation=pace)]
        with Cluster(hosts=1, pools=pools) as c:
            c.start()
            wait_until(lambda: c.ready() and sum(w["ready"] for w in c.get("/debug/workers")[1]["workers"]) == 2, "two ready workers")
            request = {"model": "m", "prompt": "once upon a time " * 20, "max_tokens": 200, "temperature": 0, "ignore_eos": True}
            texts = []
            began = time.monotonic()
            asking = [threading.Thread(target=lambda: texts.append("".join(e["choices"][0]["text"] for e in c.stream("/v1/completions", request) if e != "[DONE]" and e["choices"]))) for _ in range(4)]
            for thread in asking:
                thread.start()
            line = c["h0"].wait_for("event=engine_hung engine=both/bad/h0.0 .*").group(0)
            self.assertIn("without progress", line)
            for thread in asking:
                thread.join(60)
            self.assertEqual(len(texts), 4)
            self.assertEqual(set(texts), {texts[0]})
            self.assertLess(time.monotonic() - began, 30)
            c["h0"].wait_for("event=engine_ready engine=both/bad/h0.0", count=2)
            self.assertNotIn("event=engine_hung engine=both/good", c["h0"].log)


class BadModels(unittest.TestCase):
    def engine_of(self, model):
        return Cluster(hosts=1, model_path=str(model), pools=[dict(role="both", engine="llama", hosts=["h0"])])

    def test_missing(self):
        with self.engine_of("/nonexistent/model.gguf") as c:
            c.start()
            line = c["h0"].wait_for("event=engine_given_up .*").group(0)
            self.assertIn("/nonexistent/model.gguf", line)
            time.sleep(1)
            self.assertEqual(c["h0"].log.count("event=engine_started"), 1)
            status, body = c.post("/v1/chat/completions", CHAT)
            self.assertEqual(status, 503, body)
            self.assertIsNone(c["h0"].process.poll())

    def test_corrupt(self):
        with self.engine_of("/dev/null") as c:
            bad = c.folder / "bad.gguf"
            bad.write_bytes(b"GGUF" + b"\xff" * 4096)
            c.config.write_text(c.config.read_text().replace("/dev/null", str(bad)))
            c.start()
            line = c["h0"].wait_for("event=engine_given_up .*").group(0)
            self.assertIn("bad.gguf", line)
            self.assertEqual(c["h0"].log.count("event=engine_started"), 1)


    def test_a_loader_that_hangs(self):
        with self.engine_of("/dev/null") as c:
            stuck = c.folder / "stuck.gguf"
            os.mkfifo(stuck)  # opening it waits for a writer, as a dead network mount would
            c.config.write_text(c.config.read_text().replace("/dev/null", str(stuck)) + '\n[health]\nload_timeout = "2s"\n')
            c.start()
            # It goes on saying each second that it is loading.
            c["h0"].wait_for("event=engine_load_stuck engine=both/p0/h0.0 ", seconds=20)
            c["h0"].wait_for("event=engine_started", count=2)


class NoOrphans(unittest.TestCase):
    def gone(self, pids):
        wait_until(lambda: not any(alive(p) for p in pids), f"the end of {pids}", 10)

    def test_after_sigterm(self):
        with Cluster(**ONE) as c:
            c.start()
            c.wait_ready()
            engines = c["h0"].engines()
            self.assertEqual(c["h0"].stop(), 0, c["h0"].log)
            self.gone(engines)

    def test_after_sigkill(self):
        with Cluster(**ONE) as c:
            c.start()
            c.wait_ready()
            engines = c["h0"].engines()
            self.assertTrue(engines)
            c["h0"].signal(signal.SIGKILL)
            c["h0"].wait()
            self.gone(engines)

    def test_after_sigterm_while_starting(self):
        with Cluster(**ONE) as c:
            c.start()
            engines = wait_until(lambda: c["h0"].engines(), "an engine process")
            self.assertEqual(c["h0"].stop(), 0, c["h0"].log)
            self.gone(engines)


class Drain(unittest.TestCase):
    SLOW = dict(hosts=1, pools=[dict(role="both", hosts=["h0"], simulation=dict(decode_step_us=20000))])

    def stream(self, c, tokens):
        return c.stream("/v1/chat/completions", {**CHAT, "max_tokens": tokens, "ignore_eos": True})

    def test_streams_end_by_themselves(self):
        with Cluster(**self.SLOW) as c:
            c.start()
            c.wait_ready()
            events = self.stream(c, 100)
            next(events)
            c["h0"].signal(signal.SIGTERM)
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]")
            self.assertEqual(rest[-2]["choices"][0]["finish_reason"], "length")
            self.assertEqual(c["h0"].wait(), 0, c["h0"].log)

    def test_the_limit_ends_them_with_an_error(self):
        with Cluster(**self.SLOW, extra='\n[limits]\ndrain_timeout = "1s"\n') as c:
            c.start()
            c.wait_ready()
            events = self.stream(c, 4000)
            next(events)
            c["h0"].signal(signal.SIGTERM)
            rest = list(events)
            self.assertIn("error", rest[-1])
            self.assertEqual(c["h0"].wait(20), 0, c["h0"].log)

    def test_a_second_signal_ends_them_at_once(self):
        with Cluster(**self.SLOW) as c:
            c.start()
            c.wait_ready()
            events = self.stream(c, 4000)
            next(events)
            c["h0"].signal(signal.SIGTERM)
            c["h0"].wait_for("stopping: ")
            began = time.monotonic()
            c["h0"].signal(signal.SIGTERM)
            rest = list(events)
            self.assertIn("error", rest[-1])
            self.assertEqual(c["h0"].wait(15), 0, c["h0"].log)
            # Not after limits.drain_timeout, which is 30 s.
            self.assertLess(time.monotonic() - began, 15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
