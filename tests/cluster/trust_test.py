"""Who may join, and who may not: links between hosts by certificates, engines by the secret of their node's start, consoles by their role."""

import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import unittest
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, Cluster, wait_until  # noqa: E402
from namespaces import WiredCluster, why_not  # noqa: E402

UP = "event=peer_up host={} "
LEFT_OUT = why_not()
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def run_node(config, host):
    return subprocess.run([TROUPE, "node", "--config", str(config), "--host", host], capture_output=True, text=True, timeout=60)


def file_of(c, name):
    return c.folder / "certificates" / name


class Links(unittest.TestCase):
    def refused(self, change, reason, asked=("h0", "h1"), first="h0"):
        """The files are changed between the starts of the two hosts: neither takes the other for a peer, and one of those asked says why."""
        with Cluster() as c, Cluster(cluster_id="test") as other:
            c.start(first).wait_for("event=node_started")
            change(c, other)
            c.start("h1" if first == "h0" else "h0")
            wait_until(lambda: any(reason in c[h].log for h in asked), lambda: f"{reason}: {c['h0'].log}\n{c['h1'].log}", 30)
            time.sleep(1)
            for node in c.nodes.values():
                self.assertNotIn("event=peer_up", node.log)
                self.assertIsNone(node.process.poll(), node.log)

    def test_another_ca(self):
        def change(c, other):
            for name in ("ca.pem", "host-h1.pem", "host-h1.key"):
                file_of(c, name).write_bytes(file_of(other, name).read_bytes())
        # h0 has read its own CA already.
        self.refused(change, "code=tls_refused")

    def test_a_certificate_of_another_host(self):
        # h2 is a host of the cluster with a certificate of its own, but it isn't h1: whoever runs it cannot take h1's place.
        with Cluster(hosts=3) as c:
            for kind in ("pem", "key"):
                file_of(c, f"host-h1.{kind}").write_bytes(file_of(c, f"host-h2.{kind}").read_bytes())
            r = run_node(c.config, "h1")
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertRegex(r.stderr, r'cluster\.toml:\d+:\d+: .*host-h1\.pem: it is the certificate of "h2"')

    def test_a_host_that_claims_anothers_name(self):
        # A node that was changed not to look: its cluster file calls its own certificate's host by the name of another one's.
        with Cluster(hosts=3) as c:
            text = c.config.read_text()
            mine = c.folder / "mine.toml"
            swapped = text.replace('name = "h1"', 'name = "hX"').replace('name = "h2"', 'name = "h1"').replace('name = "hX"', 'name = "h2"')
            mine.write_text(swapped)
            c.start("h0", "h2")
            c["h2"].wait_for(UP.format("h0"))
            # h1's address with h2's name in the file: h0 looks for h1 there, and finds h2's certificate.
            c.start("h2", config=mine)
            c["h0"].wait_for("code=tls_refused .*hostname mismatch", seconds=30)
            self.assertNotIn(UP.format("h1"), c["h0"].log)

    def test_a_plain_node(self):
        # h0 connects, h1 listens.
        def change(c, other):
            c.config.write_text(c.config.read_text().replace("[cluster]\n", "[cluster]\ninsecure_links = true\n"))
        self.refused(change, "is insecure_links set there, and not here", asked=("h0",))
        self.refused(change, "is insecure_links set there, and not here", asked=("h1",), first="h1")

    def test_strangers_get_nothing_and_disturb_nobody(self):
        with Cluster() as c:
            c.start("h0").wait_for("event=node_started")
            where = (c.addresses[0], c.ports[0])
            # Plain bytes, a handshake without a certificate, and silence.
            with socket.create_connection(where) as s:
                s.settimeout(20)
                s.sendall(b"GET / HTTP/1.1\r\n\r\n")
                with suppress(ConnectionError):
                    self.assertEqual(s.recv(4096), b"")
            context = ssl.create_default_context(cafile=str(file_of(c, "ca.pem")))
            context.check_hostname = False
            with socket.create_connection(where) as s, self.assertRaises((ssl.SSLError, ConnectionError)):
                s.settimeout(20)
                with context.wrap_socket(s) as t:
                    self.assertEqual(t.version(), "TLSv1.3")
                    t.sendall(b"x" * 100)
                    if not t.recv(100):
                        raise ConnectionError
            with socket.create_connection(where) as silent:
                c.start("h1")
                c["h0"].wait_for(UP.format("h1"))
                self.assertIn("code=tls_refused", c["h0"].log)
                silent.settimeout(20)
                with suppress(ConnectionError):
                    self.assertEqual(silent.recv(100), b"")

    def test_a_person_is_no_host(self):
        with Cluster() as c:
            c.cert("console", "ada", "--role", "operator")
            c.start("h0").wait_for("event=node_started")
            context = ssl.create_default_context(cafile=str(file_of(c, "ca.pem")))
            context.check_hostname = False
            context.load_cert_chain(file_of(c, "console-ada.pem"), file_of(c, "console-ada.key"))
            with socket.create_connection((c.addresses[0], c.ports[0])) as s, context.wrap_socket(s) as t:
                t.settimeout(20)
                with suppress(ConnectionError, ssl.SSLError):
                    self.assertEqual(t.recv(100), b"")
            c["h0"].wait_for("role operator, which has no access here")

    def test_missing_files_are_named(self):
        with Cluster() as c:
            file_of(c, "host-h1.key").unlink()
            r = run_node(c.config, "h1")
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("host-h1.key", r.stderr)
            self.assertIn("troupe cert create", r.stderr)

    @unittest.skipUnless(FAKETIME, "libfaketime is not there")
    def test_a_certificate_that_has_ended(self):
        with Cluster() as c:
            # For a day, by a clock that is two days behind.
            c.cert("renew", "--days", "1", env={"LD_PRELOAD": str(FAKETIME), "FAKETIME": "-2d"})
            r = run_node(c.config, "h0")
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertRegex(r.stderr, r"host-h0\.pem: it ended on ")

    def test_long_prompts_go_over_in_parts(self):
        # The gateway is h0's, and whoever computes is h1's.
        with Cluster(pools=[dict(role="both", hosts=["h1"], kv_tokens=2_000_000)], context_tokens=2_000_000) as c:
            c.start()
            c.wait_ready()
            prompt = "".join(f"{i} bottles on the wall. " for i in range(60_000))
            self.assertGreater(len(prompt), 1_500_000)
            status, answer = c.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 8, "ignore_eos": True})
            self.assertEqual(status, 200, answer)
            self.assertGreater(answer["usage"]["prompt_tokens"], 100_000)

    def test_certificates_are_renewed_under_way(self):
        with Cluster() as c:
            c.start()
            c["h0"].wait_for(UP.format("h1"))
            c.cert("renew", "--days", "7")
            time.sleep(1.5)
            c["h1"].stop()
            c.start("h1")
            c["h0"].wait_for(UP.format("h1"), count=2)
            self.assertIn("event=certificate_reloaded", c["h0"].log)

    def test_doing_without_is_named(self):
        with Cluster(cluster_lines="insecure_links = true\n") as c:
            checked = subprocess.run([TROUPE, "config", "check", str(c.config)], capture_output=True, text=True, timeout=60)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertRegex(checked.stderr, r"cluster\.toml:\d+:\d+: warning: insecure_links = true")
            c.start()
            c["h0"].wait_for("warning: insecure_links = true")
            c["h0"].wait_for(UP.format("h1"))


def listening(pid):
    """The addresses at which a process listens by TCP and IPv4."""
    sockets = {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if os.path.islink(f)}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [ipaddress.ip_address(bytes.fromhex(row[1].split(":")[0])[::-1]) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


class Engines(unittest.TestCase):
    def test_another_process_is_no_engine(self):
        """Started as a node starts one, but with another secret, or none."""
        with Cluster(hosts=1) as c:
            node = c.start()
            c.wait_ready()
            pid = node.engine("both/p0/h0.0")
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
            at = arguments.index("--secret-fd") + 1
            board = arguments.index("--board-fd")
            del arguments[board : board + 2]
            at -= 2 * (board < at)
            for secret in (b"", b"x" * 32):
                mine, theirs = os.pipe()
                os.write(theirs, secret)
                os.close(theirs)
                arguments[at] = str(mine)
                done = subprocess.run([TROUPE, *arguments[1:]], pass_fds=[mine], capture_output=True, text=True, timeout=60)
                os.close(mine)
                self.assertEqual(done.returncode, 6, done.stderr)
                self.assertIn("secret", done.stderr)
            self.assertIn("code=bad_secret", node.log)
            # The real one is untouched.
            self.assertEqual(node.engine("both/p0/h0.0"), pid)
            self.assertEqual(c.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 2})[0], 200)

    def test_their_port_says_nothing_without_the_secret(self):
        with Cluster(hosts=1) as c:
            node = c.start()
            c.wait_ready()
            arguments = Path(f"/proc/{node.engine('both/p0/h0.0')}/cmdline").read_bytes().decode().split("\0")
            port = int(arguments[arguments.index("--node-port") + 1])
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.settimeout(20)
                with suppress(ConnectionError):
                    self.assertEqual(s.recv(100), b"")
            self.assertEqual(c.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 2})[0], 200)

    def test_a_cluster_on_loopback_listens_nowhere_else(self):
        """Nor does the library for KV transfers, which takes all networks that it may."""
        with Cluster(hosts=2) as c:
            c.start()
            c.wait_ready()
            addresses = [a for node in (c["h0"], c["h1"]) for pid in [node.pid, *node.engines()] for a in listening(pid)]
            self.assertGreater(len(addresses), 6)
            self.assertEqual([a for a in addresses if not a.is_loopback], [])

    @unittest.skipIf(LEFT_OUT or not shutil.which("ss"), f"no network namespaces here, or no ss: {LEFT_OUT}")
    def test_their_port_is_on_loopback(self):
        with WiredCluster(1) as c:
            node = c.start()
            c.wait_ready()
            lines = subprocess.run([*c.command_prefix("h0"), "ss", "-tlnH"], capture_output=True, text=True).stdout.splitlines()
            mine = [line.split()[3] for line in lines]
            self.assertEqual([a for a in mine if not a.startswith("127.")], [f"{c.addresses[0]}:{c.ports[0]}"], node.log)
            self.assertGreater(len(mine), 2)


@unittest.skipIf(LEFT_OUT, f"no network namespaces here: {LEFT_OUT}")
class Consoles(unittest.TestCase):
    def test_roles_by_certificates(self):
        with WiredCluster(1) as c:
            c.config.write_text(c.config.read_text().replace(f"admin_port = {c.admin_ports[0]}\n", f'admin_port = {c.admin_ports[0]}\nadmin_address = "{c.addresses[0]}"\n'))
            r = subprocess.run([*c.command_prefix("h0"), TROUPE, "node", "--config", str(c.config), "--host", "h0"], capture_output=True, text=True, timeout=60)
            self.assertEqual(r.returncode, 3, r.stderr)
            self.assertIn("troupe cert create", r.stderr)
            c.cert("create")
            c.start()
            c["h0"].wait_for("event=engine_ready")
            code, said = c.console("tree", check=False)
            self.assertNotEqual(code, 0)
            self.assertIn("troupe cert console", said)
            c.cert("console", "ada", "--role", "operator")
            # The only one there is.
            self.assertEqual(c.console("tree", check=False)[0], 0)
            c.cert("console", "bob")
            code, said = c.console("tree", check=False)
            self.assertNotEqual(code, 0)
            self.assertIn("--as must say whose certificate to use: ada, bob", said)
            for person in ("ada", "bob"):
                self.assertEqual(c.console("--as", person, "tree", check=False)[0], 0)
            code, said = c.console("--as", "bob", "drain", "pool:p0", check=False)
            self.assertNotEqual(code, 0)
            self.assertIn("orders need the role operator", said)
            code, said = c.console("--as", "ada", "drain", "pool:p0", check=False)
            self.assertEqual(code, 0, said)
            # A host's.
            for kind in ("pem", "key"):
                file_of(c, f"console-eve.{kind}").write_bytes(file_of(c, f"host-h0.{kind}").read_bytes())
            code, said = c.console("--as", "eve", "tree", check=False)
            self.assertNotEqual(code, 0, said)
            self.assertIn("which has no access here", c["h0"].log)

    def test_a_person_may_think(self):
        """The first command comes long after the handshake."""
        with WiredCluster(1) as c:
            c.config.write_text(c.config.read_text().replace(f"admin_port = {c.admin_ports[0]}\n", f'admin_port = {c.admin_ports[0]}\nadmin_address = "{c.addresses[0]}"\n'))
            c.cert("create")
            c.cert("console", "ada", "--role", "operator")
            c.start()
            c["h0"].wait_for("event=engine_ready")
            p = subprocess.Popen([*c.command_prefix("h0"), TROUPE, "console", "--config", str(c.config), "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            c["h0"].wait_for("event=console_session .* person=ada role=operator", seconds=20)
            said, _ = p.communicate("tree\n", timeout=60)
            self.assertEqual(p.returncode, 0, said)
            self.assertIn("requests/h0", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
