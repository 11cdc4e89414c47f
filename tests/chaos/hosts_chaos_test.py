"""What else a host meets: a full disk under the logs, a clock that jumps, floods of large messages, clients that do not read, and a gateway that is killed."""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
import unittest
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from chaos import APART, BODY, pool, scenario, wait_until  # noqa: E402

LOAD = dict(rate=6, seconds=15)
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
LEASES_FREE_S = 6.0


def resident_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


class Hosts(unittest.TestCase):
    def test_the_disk_of_the_logs_is_full(self):
        with scenario(APART, load=LOAD, log_to="/dev/full") as s:
            s.streams(6)
            time.sleep(1)
            host, name = s.busy("decode")
            os.kill(s.c[host].engine(name), signal.SIGKILL)  # so that there is much to say
            time.sleep(10)
        print(f"full disk: longest pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)

    @unittest.skipUnless(FAKETIME, "libfaketime is not there")
    def test_the_clock_jumps(self):
        for jump in ("+3600", "-3600"):
            with self.subTest(jump):
                offset = Path(os.environ.get("TMPDIR", "/tmp")) / f"troupe-clock-{os.getpid()}"
                offset.write_text("+0\n")
                self.addCleanup(offset.unlink, missing_ok=True)
                env = dict(LD_PRELOAD=str(FAKETIME), FAKETIME_TIMESTAMP_FILE=str(offset), FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1")
                with scenario(APART, load=LOAD, env=env) as s:
                    s.streams(6)
                    time.sleep(2)
                    offset.write_text(f"{jump}\n")
                    time.sleep(6)
                    for host in s.c.hosts:
                        self.assertNotRegex(s.c[host].log, "event=(peer_down|engine_hung|engine_ended)")
                    host, name = s.busy("decode")
                    os.kill(s.c[host].engine(name), signal.SIGKILL)
                    line = s.c[host].wait_for(rf"(?m)^(\S+) .*event=engine_ended engine={name}")
                    ahead = datetime.fromisoformat(line.group(1)).timestamp() - time.time()
                    s.streams(4)
                print(f"clock {jump} s: longest pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)
                self.assertAlmostEqual(ahead, float(jump), delta=60)  # it did jump
                self.assertLess(max(s.pauses), 2.0)

    def test_a_flood_of_large_messages(self):
        # Prompts of a megabyte, far above the context: each crosses a link in parts before it is refused.
        pools = [pool("prefill", "h1"), pool("decode", "h2")]
        large = {**BODY, "prompt": "many words " * 95_000}
        with scenario(pools, load=LOAD) as s:
            s.streams(4)
            over, answers = time.monotonic() + 10, []

            def flood():
                while time.monotonic() < over:
                    answers.append(s.c.post("/v1/completions", large)[0])

            clients = [threading.Thread(target=flood) for _ in range(16)]
            for c in clients:
                c.start()
            for c in clients:
                c.join()
            logs = s.c["h0"].log
        self.assertNotIn("event=peer_down", logs)
        self.assertTrue(set(answers) <= {400, 413, 429, 503} and 400 in answers, sorted(set(answers)))
        print(f"flood: {len(answers)} prompts of 1 MB, answers {dict((a, answers.count(a)) for a in set(answers))}; longest pause {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)
        self.assertLess(max(s.pauses), 4.0)

    def test_clients_that_do_not_read(self):
        with scenario(APART, load=LOAD, extra='\n[limits]\nstalled_client_timeout = "3s"\n') as s:
            before = resident_mb(s.c["h0"].pid)
            body = json.dumps({**BODY, "max_tokens": 6000, "logprobs": 5, "stream": True, "n": 4}).encode()
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            stalled = []
            for _ in range(12):
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.connect(("127.0.0.1", s.c.gateway_port))
                sock.sendall(head + body)
                stalled.append(sock)
            s.streams(6)
            wait_until(lambda: len(re.findall("stall", s.c["h0"].log)) >= 1, lambda: f"a stalled client is given up: {s.c['h0'].log[-2000:]}", 60)
            time.sleep(5)
            grown = resident_mb(s.c["h0"].pid) - before
            for sock in stalled:
                sock.close()
        print(f"clients that do not read: node grew by {grown:.1f} MB, longest pause of others {max(s.pauses):.2f} s, load {s.report['whole']} whole", flush=True)
        self.assertLess(grown, 60)
        self.assertLess(max(s.pauses), 1.0)

    def test_the_gateways_node_is_killed(self):
        # Its clients lose their connections, and nobody else anything: what it had leased is free again within seconds.
        pools = [pool("prefill", "h0"), pool("decode", "h0", "h1")]
        with scenario(pools, gateway="h2") as s:
            lost = s.streams(6)
            time.sleep(1.5)
            s.busy("decode")
            s.c["h2"].signal(signal.SIGKILL)
            began = time.monotonic()
            s.c["h2"].wait()
            for stream in lost:
                stream.join(5)
                self.assertFalse(stream.is_alive(), "a client of a dead gateway hangs")
            s.open.clear()
            s.c.start("h2")
            s.c.wait_ready()
            # The workers' own reports tell, and they reach the new gateway's node as they reached the old one's.
            wait_until(lambda: len(s.c.workers()) == 3 and all(w.get("idle") and not w.get("kv_used_tokens") for w in s.c.workers()), lambda: f"everything given back: {s.c.workers()}", LEASES_FREE_S + 2)
            free = time.monotonic() - began
            s.streams(4)
        print(f"gateway killed: everything free after {free:.1f} s; streams after it unchanged", flush=True)
        self.assertLess(free, LEASES_FREE_S + 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
