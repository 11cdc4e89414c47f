"""Wires that are cut, both ways or either one, again and again, and wires that are slow and lose packets, under a steady load. Hosts are network namespaces; the counters of their wires
prove that the KV crossed them."""

import os
import random
import re
import sys
import time
import unittest
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chaos import Load, pool, ready_workers, scenario, wait_until  # noqa: E402
from namespaces import WiredCluster, why_not  # noqa: E402
from slow_wire import SlowWire  # noqa: E402

LEFT_OUT = why_not()
CUTS = 20
NOTICED_S = 6.0
APART = [pool("prefill", "h0"), pool("decode", "h1", "h2")]


def lines(node, pattern):
    """When a node logged what, in seconds of the machine's clock."""
    return [(datetime.fromisoformat(m.group(1)).timestamp(), m.group(0)) for m in re.finditer(rf"(?m)^(\S+\+00:00) .*{pattern}.*$", node.log)]


def kv_into(c, host):
    """Bytes of KV that the decode worker there has received since it started, by its own count."""
    return sum(w.get("transfer_bytes", 0) for w in c.workers() if w["host"] == host)


def kv_of(streams, host):
    """What these streams' timelines say of the KV that went to the host: bytes, and by what."""
    transfers = [a["transfer"] for s in streams for a in s.attempts() if a.get("decode", {}).get("worker", "").endswith(f"/{host}.0") and a.get("transfer", {}).get("bytes")]
    return sum(t["bytes"] for t in transfers), {t["transport"] for t in transfers}


def load_inside(c, seconds, **more):
    """The load generator runs where the gateway listens."""
    return Load(c, prefix=c.command_prefix("h0"), seconds=seconds, **more)


@unittest.skipIf(LEFT_OUT, f"no network namespaces here: {LEFT_OUT}")
class Wires(unittest.TestCase):
    def check_that_kv_crossed(self, streams, host, kv, wire):
        """`kv`: the worker's count of KV, of the streams and of the load; `wire`: bytes on the host's wire meanwhile. All else on it is less than the KV alone, so that there would be too few if the
        KV had gone another way."""
        of_streams, transports = kv_of(streams, host)
        self.assertEqual(transports, {"ucx:tcp"}, host)
        self.assertGreater(of_streams, 0, host)
        self.assertGreaterEqual(kv, of_streams, host)
        self.assertGreaterEqual(wire, kv, host)
        self.assertLess(wire - kv, kv, host)

    def test_twenty_cuts(self):
        seed = int(os.environ.get("TROUPE_CHAOS_SEED", "1"))
        choose = random.Random(seed)
        noticed, streams = [], 0
        with scenario(APART, make=WiredCluster) as s:
            network = s.c.network
            s.load = load_inside(s.c, CUTS * 10.0, rate=4)
            for number in range(CUTS):
                host = choose.choice(["h1", "h2"])
                cut, mend = ((network.cut, network.join), (network.mute, network.unmute), (network.deafen, network.undeafen))[number % 3]
                s.streams(2, fresh=True)
                streams += 2
                time.sleep(choose.uniform(0.3, 1.0))
                before = len(lines(s.c["h0"], f"event=peer_down host={host}"))
                began = time.time()
                cut(host)
                down = wait_until(lambda: lines(s.c["h0"], f"event=peer_down host={host}")[before:], f"{host} is seen to be gone (cut {number}, seed {seed})", 15)
                noticed.append(down[0][0] - began)
                time.sleep(choose.uniform(0.0, 1.0))
                mend(host)
                wait_until(lambda: ready_workers(s.c) == s.everybody, lambda: f"{host} back in work after cut {number}: {s.c.workers()}", 30)
            s.check_streams()
            kv = {h: kv_into(s.c, h) for h in ("h1", "h2")}
            wires = {h: network.bytes_received(h) for h in kv}
            for h in kv:
                self.check_that_kv_crossed(s.open, h, kv[h], wires[h])
        print(f"{CUTS} cuts: noticed after {min(noticed):.1f} to {max(noticed):.1f} s; {streams} streams unchanged, longest pause {max(s.pauses):.1f} s; load {s.report['whole']} whole, "
              f"{s.report['failed']} failed; " + "; ".join(f"into {h} {wires[h]:,} bytes, KV {kv[h]:,}" for h in kv), flush=True)
        self.assertLess(max(noticed), NOTICED_S)

    def test_a_slow_and_lossy_wire(self):
        with scenario(APART, make=WiredCluster) as s:
            wire = SlowWire(s.c.network, "h2", delay_s=0.1, loss=0.05)  # 200 ms there and back
            try:
                wait_until(lambda: ready_workers(s.c) == s.everybody, lambda: f"h2 in work over the slow wire: {s.c.workers()}", 60)
                time.sleep(2)  # its reports have come over it
                kv_before, before = kv_into(s.c, "h2"), wire.carried
                s.load = load_inside(s.c, 30.0, rate=4)
                s.streams(8, fresh=True)
                time.sleep(20)
                over = [x for x in s.open if any(a.get("decode", {}).get("worker", "").endswith("/h2.0") for a in x.attempts())]
                s.check_streams()
                s.check_load()
                s.load = None
                kv = kv_into(s.c, "h2") - kv_before
                carried = wire.carried - before
                self.check_that_kv_crossed(s.open, "h2", kv, carried)
                s.check_books()
            finally:
                s.lossy = wire
            self.assertTrue(over, "no stream used the slow wire")
            print(f"slow wire: {len(over)} of {len(s.open)} streams over it, {carried:,} bytes carried, KV {kv:,}, {wire.lost} frames lost, longest pause {max(x.longest_pause() for x in s.open):.1f} s", flush=True)
        wire.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
