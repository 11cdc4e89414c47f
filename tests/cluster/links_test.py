"""Nodes as real processes: links, refusals, losses, addresses, and orderly ends. Engines play no part here: whether they start or not, links stand."""

import os
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, Cluster, free_port, wait_until  # noqa: E402


def run_node(config, host):
    return subprocess.run([TROUPE, "node", "--config", str(config), "--host", host], capture_output=True, text=True, timeout=60)


class Links(unittest.TestCase):
    def test_two_nodes_link_in_either_order(self):
        for order in (["h0", "h1"], ["h1", "h0"]):
            with self.subTest(order=order), Cluster() as c:
                c.start(order[0])
                c[order[0]].wait_for("event=node_started")
                c.start(order[1])
                c["h0"].wait_for("event=peer_up host=h1 ")
                c["h1"].wait_for("event=peer_up host=h0 ")

    def test_killed_peer_is_noticed_and_comes_back(self):
        with Cluster() as c:
            c.start()
            c["h0"].wait_for("event=peer_up host=h1 ")
            c["h1"].signal(signal.SIGKILL)
            began = time.monotonic()
            c["h0"].wait_for("event=peer_down host=h1 ", seconds=20)
            self.assertLess(time.monotonic() - began, 6)
            c["h1"].wait()
            c.start("h1")
            c["h0"].wait_for("event=peer_up host=h1 ", count=2)
            c["h1"].wait_for("event=peer_up host=h0 ")

    def test_frozen_peer_is_noticed_and_links_again(self):
        for frozen, other in (("h1", "h0"), ("h0", "h1")):
            with self.subTest(frozen=frozen), Cluster() as c:
                c.start()
                c[other].wait_for(f"event=peer_up host={frozen} ")
                c[frozen].wait_for(f"event=peer_up host={other} ")
                c[frozen].signal(signal.SIGSTOP)
                began = time.monotonic()
                c[other].wait_for(f"event=peer_down host={frozen} ", seconds=20)
                self.assertLess(time.monotonic() - began, 7)
                c[frozen].signal(signal.SIGCONT)
                c[other].wait_for(f"event=peer_up host={frozen} ", count=2)
                c[frozen].wait_for(f"event=peer_up host={other} ", count=2)

    def test_three_nodes_form_a_mesh(self):
        with Cluster(hosts=3) as c:
            c.start()
            for a in c.hosts:
                for b in c.hosts:
                    if a != b:
                        c[a].wait_for(f"event=peer_up host={b} ")


class Refusals(unittest.TestCase):
    def test_another_cluster_is_refused_on_both_sides_by_name(self):
        with Cluster() as c:
            other = c.folder / "other.toml"
            other.write_text(c.config.read_text().replace('id = "test"', 'id = "staging"'))
            c.start("h0")
            c.start("h1", config=other)
            for host in ("h0", "h1"):
                line = c[host].wait_for("event=link_refused .*").group(0)
                self.assertIn("code=other_cluster", line)
                self.assertIn("'test'", line)
                self.assertIn("'staging'", line)
            time.sleep(1)
            self.assertNotIn("event=peer_up", c["h0"].log + c["h1"].log)
            # Said once, not at every try.
            self.assertEqual(c["h0"].log.count("event=link_refused"), 1)
            self.assertIsNone(c["h0"].process.poll())

    def test_skew_is_shown_with_the_keys_that_differ(self):
        with Cluster() as c:
            other = c.folder / "other.toml"
            other.write_text(c.config.read_text().replace('id = "test"', 'id = "test"\ngeneration = 2').replace('[limits]\n', '[limits]\ndrain_timeout = "7s"\n'))
            c.start("h0")
            c.start("h1", config=other)
            line = c["h0"].wait_for("event=peer_up host=h1 .*").group(0)
            self.assertRegex(line, 'config_skew="[^"]*limits')
            self.assertTrue(line.endswith(" behind=h0"), line)

    def test_a_stranger_on_the_link_port_harms_nobody(self):
        with Cluster() as c:
            c.start()
            c["h0"].wait_for("event=peer_up host=h1 ")
            with socket.create_connection((c.addresses[0], c.ports[0])) as s:
                s.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
                s.settimeout(2)
                try:
                    while s.recv(4096):
                        pass
                except OSError:
                    pass
            time.sleep(0.5)
            self.assertIsNone(c["h0"].process.poll())
            self.assertNotIn("event=peer_down", c["h0"].log)


class Addresses(unittest.TestCase):
    def test_port_in_use(self):
        with Cluster() as c, socket.socket() as s:
            s.bind((c.addresses[0], c.ports[0]))
            s.listen()
            r = run_node(c.config, "h0")
            self.assertEqual(r.returncode, 4, r.stderr)
            self.assertIn(f"port {c.ports[0]} of {c.addresses[0]} is in use", r.stderr)
            self.assertRegex(r.stderr, r"cluster\.toml:\d+:\d+: ")

    def test_gateway_port_in_use(self):
        with Cluster() as c, socket.socket() as s:
            s.bind(("127.0.0.1", c.gateway_port))
            s.listen()
            r = run_node(c.config, "h0")
            self.assertEqual(r.returncode, 4, r.stderr)
            self.assertIn(f"gateway of host h0: port {c.gateway_port}", r.stderr)

    def test_gateway_port_taken_after_it_was_looked_at(self):
        # Addresses are tried while the node has one thread; then it starts others, and listens. Whoever comes between them is met about every time, and sometimes too late.
        for _ in range(20):
            with Cluster() as c, socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                node = c.start("h0")
                wait_until(lambda: node.process.poll() is not None or len(os.listdir(f"/proc/{node.pid}/task")) > 1, "threads", pause=0)
                node.signal(signal.SIGSTOP)
                try:
                    s.bind(("127.0.0.1", c.gateway_port))
                    s.listen()
                except OSError:
                    continue  # too late: it listens
                node.signal(signal.SIGCONT)
                self.assertEqual(node.wait(), 4, node.log)
                self.assertRegex(node.log, rf"cluster\.toml:\d+:\d+: gateway of host h0: cannot listen on 127\.0\.0\.1:{c.gateway_port}: the port is in use")
                return
        self.fail("the port was never to be had between the two")

    def test_an_address_of_another_machine(self):
        with Cluster(addresses=["127.0.0.1", "203.0.113.7"], port=free_port()) as c:
            r = run_node(c.config, "h1")
            self.assertEqual(r.returncode, 4, r.stderr)
            self.assertIn("203.0.113.7 is not an address of this machine", r.stderr)


class Files(unittest.TestCase):
    def test_unknown_host(self):
        with Cluster() as c:
            r = run_node(c.config, "h9")
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("h9", r.stderr)
            self.assertIn("h0, h1", r.stderr)

    def test_invalid_file(self):
        with Cluster(hosts=1, extra="\n[limits]\nno_such_key = 1\n") as c:
            r = run_node(c.config, "h0")
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertRegex(r.stderr, r"cluster\.toml:\d+:\d+: .*no_such_key")

    def test_usage(self):
        r = subprocess.run([TROUPE, "node", "--hots", "h0"], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 2)


class Ends(unittest.TestCase):
    def test_sigterm_and_sigint_end_with_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number), Cluster() as c:
                c.start()
                c["h0"].wait_for("event=peer_up host=h1 ")
                c["h1"].signal(number)
                self.assertEqual(c["h1"].wait(), 0, c["h1"].log)
                # Its peer hears it from the goodbye, not from silence.
                c["h0"].wait_for("event=peer_down host=h1 .*", seconds=3)
                self.assertEqual(c["h0"].stop(), 0, c["h0"].log)

    def test_without_standard_streams(self):
        """Nothing else takes their numbers, so that no log line goes into a link."""
        with Cluster(hosts=1) as c:
            node = subprocess.Popen(["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", TROUPE, "node", "--config", str(c.config), "--host", "h0"])
            try:
                fds = Path(f"/proc/{node.pid}/fd")
                wait_until(lambda: len(list(fds.iterdir())) > 12, "a node that has begun")
                self.assertEqual({os.readlink(fds / str(n)) for n in range(3)}, {"/dev/null"})
            finally:
                node.terminate()
                node.wait(60)

    def test_ports_are_free_afterwards(self):
        with Cluster() as c:
            for _ in range(2):
                c.start("h0")
                c["h0"].wait_for("event=node_started")
                self.assertEqual(c["h0"].stop(), 0, c["h0"].log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
