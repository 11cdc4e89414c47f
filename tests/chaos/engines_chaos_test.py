"""Engines that die, freeze, come back late, hang inside a step or answer garbage, under a steady load on three hosts: a client sees a pause at most, and the bytes of every stream are those
of an undisturbed one."""

import os
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chaos import APART, BACK_S, BODY, PACE, engine_name, pool, ready_workers, scenario, wait_until  # noqa: E402
from stuck_thread import stick  # noqa: E402

LOAD = dict(rate=6, seconds=25)
TOGETHER = [pool("both", "h0", "h1", "h2")]
TOKENISERS_S = 15.0  # twice hang_timeout, a report, and the first token elsewhere


class Engines(unittest.TestCase):
    def victims(self):
        for role, pools in (("both", TOGETHER), ("decode", APART), ("prefill", APART)):
            with self.subTest(role):
                yield role, pools

    def disturbed(self, role, pools, disturb, pause_max, streams=6, **more):
        """Runs one scenario; `disturb(scenario, pid, host)` is done to the engine of a busy worker."""
        with scenario(pools, load=LOAD, **more) as s:
            s.streams(streams)
            time.sleep(1.0)
            host, name = s.busy(role)
            pid = s.c[host].engine(name)
            began = time.monotonic()
            disturb(s, pid, host)
            wait_until(lambda: name in ready_workers(s.c) and any(engine_name(p) == name for p in s.c[host].engines() if p != pid), lambda: f"another {name}: {s.c.workers()}", BACK_S)
            back = time.monotonic() - began
            s.hung = [line for n in s.c.nodes.values() for line in n.log.splitlines() if "event=engine_hung" in line]
        pause = max(s.pauses)
        print(f"{self.id().rsplit('.', 1)[-1]} {role}: pause {pause:.2f} s, another engine serves after {back:.1f} s, load {s.report['whole']} whole, {s.report['failed']} failed", flush=True)
        self.assertLess(pause, pause_max)
        return s

    def test_killed(self):
        for role, pools in self.victims():
            self.disturbed(role, pools, lambda s, pid, host: os.kill(pid, signal.SIGKILL), pause_max=2.0)

    def test_frozen(self):
        for role, pools in self.victims():
            self.disturbed(role, pools, lambda s, pid, host: os.kill(pid, signal.SIGSTOP), pause_max=10.0)

    def test_stuck_inside_a_step(self):
        for role, pools in self.victims():
            self.disturbed(role, pools, lambda s, pid, host: stick(pid, "engine"), pause_max=10.0)

    def test_stuck_tokenisers(self):
        # Prompts that come then are what waits; a decode worker's prompts come tokenised.
        def disturb(s, pid, host):
            stick(pid, "tokeniser", all_of_them=True)
            s.streams(6)

        for role, pools in (("both", TOGETHER), ("prefill", APART)):
            with self.subTest(role):
                self.assert_hung(self.disturbed(role, pools, disturb, pause_max=TOKENISERS_S), "no tokeniser thread has taken up")

    def test_stuck_kv_transport(self):
        def disturb(s, pid, host):
            stick(pid, "kv-transfer")
            s.streams(6)

        for role in ("prefill", "decode"):
            with self.subTest(role):
                self.assert_hung(self.disturbed(role, APART, disturb, pause_max=10.0), "has not come round")

    def assert_hung(self, s, why):
        """One engine was ended, and for this."""
        self.assertTrue(len(s.hung) == 1 and why in s.hung[0], s.hung)

    def test_frozen_and_back_after_its_jobs_went_elsewhere(self):
        for role, pools in self.victims():
            with self.subTest(role), scenario(pools, load=LOAD) as s:
                s.streams(6)
                time.sleep(1.5)
                host, name = s.busy(role)
                pid = s.c[host].engine(name)
                os.kill(pid, signal.SIGSTOP)
                s.c[host].wait_for(f"event=engine_unlinked engine={name}", seconds=10)
                time.sleep(1)
                os.kill(pid, signal.SIGCONT)
            print(f"frozen and back, {role}: pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)
            self.assertLess(max(s.pauses), 10.0)

    def test_garbage(self):
        # What one engine computes is no number now and then: its requests go elsewhere.
        pools = [pool("both", "h0", "h1"), pool("both", "h2", simulation=dict(PACE, fault="garbage", fault_probability_per_step=0.02))]
        with scenario(pools, load=LOAD) as s:
            s.streams(9)
            time.sleep(5)
        print(f"garbage: pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)

    def test_nothing_but_garbage(self):
        # A device that is broken: its engine is killed, tried again, and given up; until then each request that comes to it goes elsewhere.
        pools = [pool("both", "h0", "h1"), pool("both", "h2", simulation=dict(PACE, fault="garbage", fault_probability_per_step=1.0))]
        with scenario(pools, load=dict(rate=6, seconds=45)) as s:
            s.streams(9)
            line = s.c["h2"].wait_for("event=engine_given_up engine=both/p1/h2.0 .*").group(0)
            self.assertIn("garbage_output", line)
            s.everybody -= {"both/p1/h2.0"}
            self.assertNotRegex("".join(n.log for n in s.c.nodes.values()), "event=engine_(hung|broken) engine=both/p0")
        print(f"nothing but garbage: pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)


TINY = os.environ.get("TROUPE_TINY_GGUF", "")
LLAMA = dict(engine="llama", slots=16, kv_tokens=131_072, threads=1)


@unittest.skipUnless(Path(TINY).is_file(), "the tiny model is not there")
class RealEngines(Engines):
    """The same with llama.cpp's: nothing paces them, and the machine's cores are all busy."""

    REAL = dict(model_path=TINY, body={**BODY, "max_tokens": 7_000}, repeatable=False, streams=4)

    def victims(self):
        together = [dict(role="both", hosts=["h0", "h1", "h2"], **LLAMA)]
        apart = [dict(role="prefill", hosts=["h0", "h1"], **LLAMA), dict(role="decode", hosts=["h1", "h2"], **LLAMA)]
        for role, pools in (("both", together), ("decode", apart)):
            with self.subTest(role):
                yield role, pools

    def disturbed(self, *arguments, **more):
        return super().disturbed(*arguments, **{**more, **self.REAL})

    test_frozen_and_back_after_its_jobs_went_elsewhere = test_garbage = test_nothing_but_garbage = test_stuck_tokenisers = test_stuck_kv_transport = None


if __name__ == "__main__":
    unittest.main(verbosity=2)
