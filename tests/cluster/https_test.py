"""The gateway's HTTPS in a real cluster: certificates that do not do are named at the start, and good ones are read again without a restart."""

import http.client
import json
import ssl
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, Cluster, wait_until  # noqa: E402


def run_node(c):
    return subprocess.run([TROUPE, "node", "--config", str(c.config), "--host", "h0"], capture_output=True, text=True, timeout=60)


def certify(c, *words):
    done = subprocess.run([TROUPE, "cert", words[0], str(c.config), *words[1:]], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


def with_https(c, certificate="certificates/host-h0.pem", key="certificates/host-h0.key"):
    c.config.write_text(c.config.read_text().replace("[[gateway]]\n", f'[[gateway]]\ncertificate = "{certificate}"\nkey = "{key}"\n'))


class Https(unittest.TestCase):
    def test_it_serves_and_follows_its_files(self):
        with Cluster(hosts=1) as c:
            certify(c, "create")
            with_https(c)
            node = c.start()
            node.wait_for("event=engine_ready")
            trusting = ssl.create_default_context(cafile=str(c.folder / "certificates/ca.pem"))

            def asked():
                connection = http.client.HTTPSConnection("127.0.0.1", c.gateway_port, timeout=30, context=trusting)
                try:
                    connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "x", "max_tokens": 2}), {"Content-Type": "application/json"})
                    status = connection.getresponse().status
                    return status, connection.sock.getpeercert()["serialNumber"] if connection.sock else None
                finally:
                    connection.close()

            wait_until(lambda: asked()[0] == 200, "an answer")
            before = asked()
            certify(c, "renew", "--days", "7")
            time.sleep(1.1)
            after = asked()
            self.assertEqual((before[0], after[0]), (200, 200))
            node.wait_for("event=certificate_reloaded")
            # Files that do not fit change nothing.
            (c.folder / "certificates/host-h0.key").write_text("nonsense")
            time.sleep(1.1)
            self.assertEqual(asked()[0], 200)
            node.wait_for("event=certificate_refused .*host-h0.key")
            # Plain HTTP is told.
            status, body = c.post("/v1/completions", {"model": "m", "prompt": "x"})
            self.assertEqual((status, body["error"]["code"]), (400, "https_needed"))

    def test_what_is_wrong_is_named_at_the_start(self):
        with Cluster(hosts=1) as c:
            certify(c, "create")
            whole = c.config.read_text()
            good, ca = c.folder / "certificates/host-h0.pem", "certificates/ca.key"
            for certificate, key, reason in (("nothing.pem", ca, "nothing.pem: No such file"), ("cluster.toml", ca, "is not a certificate in PEM"), (good, ca, "the private key is not the certificate's")):
                c.config.write_text(whole)
                with_https(c, certificate, key)
                r = run_node(c)
                self.assertEqual(r.returncode, 3, r.stderr)
                self.assertRegex(r.stderr, rf"cluster\.toml:\d+:\d+: .*{reason}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
