#!/usr/bin/env python3
"""A cluster of three hosts whose engines and nodes are restarted one after another under load: nobody notices.

The load is `troupe bench`, and clients that know what each answer must be. They behave as behind a load balancer: each new request goes to a gateway whose /readyz said yes when it was last asked; one that was sent is never sent again.
"""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, wait_until, whole_text_of  # noqa: E402

NOTICE_S = 1.0
POLL_S = 0.2
CLIENTS = 8
SLOW = {"decode_step_us": 10_000, "prefill_tokens_per_second": 20_000}
HOSTS = ["h0", "h1", "h2"]
BOTH = [dict(role="both", hosts=HOSTS, slots=32, kv_tokens=65_536, simulation=SLOW)]
APART = [dict(role="prefill", hosts=HOSTS, slots=32, kv_tokens=65_536, simulation=SLOW), dict(role="decode", hosts=HOSTS, slots=32, kv_tokens=65_536, simulation=SLOW)]
LIMITS = f'\n[limits]\ndrain_notice = "{NOTICE_S:.0f}s"\ndrain_timeout = "120s"\n'


class Balancer:
    """Asks all gateways for their readiness, and gives the ready ones in turn."""

    def __init__(self, ports):
        self.ports = ports
        self.ready = []
        self.turn = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.look()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def look(self):
        ready = [p for p in self.ports if self.says_yes(p)]
        with self.lock:
            self.ready = ready

    @staticmethod
    def says_yes(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def run(self):
        while not self.over.wait(POLL_S):
            self.look()

    def port(self):
        with self.lock:
            self.turn += 1
            return self.ready[self.turn % len(self.ready)] if self.ready else None


class Load:
    """Clients that ask one stream after another, each with the one answer that is right."""

    def __init__(self, cluster, expected):
        self.balancer = Balancer(list(cluster.gateway_ports.values()))
        self.expected = expected
        self.whole = 0
        self.failures = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.clients = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(CLIENTS)]
        for c in self.clients:
            c.start()

    def run(self, number):
        wishes = list(self.expected)
        while not self.over.is_set():
            port = self.balancer.port()
            if port is None:
                time.sleep(POLL_S)
                continue
            number += 1
            prompt, tokens = wishes[number % len(wishes)]
            try:
                text = whole_text_of(self.ask(port, prompt, tokens))
                problem = None if text == self.expected[prompt, tokens] else "another answer"
            except Exception as e:  # noqa: BLE001, counted
                problem = f"{type(e).__name__}: {e}"
            with self.lock:
                if problem:
                    self.failures.append(f"port {port}, {tokens} tokens: {problem}")
                else:
                    self.whole += 1

    @staticmethod
    def ask(port, prompt, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            wish = {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(wish), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"HTTP {response.status}: {response.read()[:300]}")
            for line in response:
                if line.startswith(b"data: "):
                    data = line[6:].strip().decode()
                    yield data if data == "[DONE]" else json.loads(data)
        finally:
            connection.close()

    def stop(self):
        self.over.set()
        for c in self.clients:
            c.join(60)
        self.balancer.over.set()


class Rolling(unittest.TestCase):
    def ready_everywhere(self, c):
        """Every gateway, and every engine as every gateway's host knows it."""
        def all_ready():
            for port in c.gateway_ports.values():
                if not Balancer.says_yes(port):
                    return False
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                try:
                    connection.request("GET", "/debug/workers")
                    workers = json.loads(connection.getresponse().read())["workers"]
                except OSError:
                    return False
                finally:
                    connection.close()
                if len(workers) != self.engines or not all(w["ready"] for w in workers):
                    return False
            return True
        wait_until(all_ready, "all gateways and engines are ready", 60)

    def check(self, pools, env_of=None):
        self.engines = sum(len(p["hosts"]) for p in pools)
        with Cluster(hosts=3, pools=pools, gateway=HOSTS, extra=LIMITS) as c:
            for host in HOSTS:
                c.start(host, env=env_of(host, 0) if env_of else None)
            c.wait_ready()
            self.ready_everywhere(c)
            expected = {}
            for i in range(4):
                for tokens in (30, 120, 300):
                    prompt = f"The longest river number {i} in the world is " * (1 + 10 * i)
                    expected[prompt, tokens] = c.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0})[1]["choices"][0]["text"]
            load = Load(c, expected)
            bench = subprocess.Popen(
                [str(c.program), "bench", "run", "--rate", "3", "--duration", "600", "--endpoint", "completions", "--model", "m", "--max-tokens", "20:200", "--ignore-eos", "--strict", "--json", str(c.folder / "bench.json"),
                 *(x for port in c.gateway_ports.values() for x in ("--url", f"http://127.0.0.1:{port}"))],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                time.sleep(1)
                self.assertTrue(all("serving" in x for x in c.console("restart", "h1", "--within", "60s", "--move-now")))
                for host in ["h1", "h2", "h0"]:
                    self.ready_everywhere(c)
                    self.assertEqual(c[host].stop(), 0, c[host].log[-3000:])
                    c.start(host, env=env_of(host, 1) if env_of else None)
                self.ready_everywhere(c)
                for pool in range(len(pools)):
                    self.assertTrue(all("serving" in x for x in c.console("restart", f"pool:p{pool}", "--within", "60s", "--move-now")))
                time.sleep(1)
            finally:
                load.stop()
                bench.send_signal(signal.SIGINT)
                said = bench.communicate(timeout=90)[1]
            report = json.loads((c.folder / "bench.json").read_text())
            logs = "\n".join(n.log for n in c.everything)
            print(f"{load.whole} whole answers, {len(load.failures)} failed; bench: {report['whole']} and {report['failed']}; {logs.count('event=stream_moved')} streams moved")
            self.assertEqual(load.failures, [])
            self.assertEqual((bench.returncode, report["failed"]), (0, 0), f"{said}{report}")
            self.assertGreater(load.whole, 20)
            self.assertGreater(report["whole"], 20)
            self.assertGreater(logs.count("event=stream_moved"), 0)
            return logs

    def test_engines_of_role_both(self):
        self.check(BOTH)

    def test_prefill_and_decode_apart(self):
        self.check(APART)

    def test_from_one_version_of_the_protocol_to_the_next(self):
        """Nodes that speak the version before are replaced one after another; each pair speaks what both know."""
        logs = self.check(BOTH, env_of=lambda host, life: {"TROUPE_PROTOCOL_MAX": "1"} if life == 0 else {})
        for version in (1, 2):
            self.assertIn(f" protocol={version}", logs)


if __name__ == "__main__":
    unittest.main()
