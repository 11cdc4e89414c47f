"""Tenants at a real cluster of two hosts, each with a gateway: keys, what each may see, limits over both gateways, and cluster files that are reloaded while requests run."""

import concurrent.futures
import http.client
import json
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, WAIT_S, Cluster, wait_until  # noqa: E402

# How it can fail: a key that opens what it should not, or goes on after it was taken out; a limit that two gateways each give; a file with a mistake that is half taken over.

POOLS = [dict(role="both", hosts=["h0"], slots=8, kv_tokens=65536, simulation=dict(prefill_tokens_per_second=20000, decode_step_us=2000))]


def new_key(tenant):
    """A key, and its hash."""
    r = subprocess.run([TROUPE, "key", "create", tenant], capture_output=True, text=True, timeout=WAIT_S, check=True)
    return re.search(r"tr-[\w-]+", r.stdout).group(), re.search(r'keys = \["(\w+)"\]', r.stdout).group(1)


def tenant(name, hashes, limit, more=""):
    keys = ", ".join(f'"{h}"' for h in hashes)
    return f'\n[[tenant]]\nname = "{name}"\nkeys = [{keys}]\nmodels = ["m"]\n{more}\n[[tenant.limit]]\nmodel = "m"\n{limit}\n'


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = {name: new_key(name) for name in ("acme", "bulk", "small", "operator", "second")}
        cls.file_end = {
            "acme": tenant("acme", [cls.keys["acme"][1]], "guaranteed_mu_per_minute = 1000\nbest_effort_weight = 1"),
            "bulk": tenant("bulk", [cls.keys["bulk"][1]], "best_effort_weight = 1\nconcurrency_max = 2\nwait_max = \"100ms\""),
            "small": tenant("small", [cls.keys["small"][1]], "guaranteed_mu_per_minute = 6\nwait_max = \"0ms\""),
        }
        cls.c = Cluster(hosts=2, pools=POOLS, gateway=["h0", "h1"], extra="\n[limits]\n" + "".join(cls.file_end.values()),
                        cluster_lines=f'operator_keys = ["{cls.keys["operator"][1]}"]\n')
        cls.addClassCleanup(cls.c.__exit__, None, None, None)
        cls.c.start()
        cls.c.wait_ready()
        cls.text = cls.c.config.read_text()

    def ask(self, key, method="POST", path="/v1/completions", body=None, host="h0", **more):
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.c.gateway_ports[host], timeout=WAIT_S)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.keys[key][0] if key in self.keys else key}"} if key else {}), **more}
        data = json.dumps({"model": "m", "prompt": "x" * 400, "max_tokens": 10, **(body or {})}) if method == "POST" else None
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, json.loads(text) if "json" in response.headers.get("Content-Type", "") else text

    def get(self, key, path, host="h0"):
        return self.ask(key, "GET", path, host=host)

    def reload(self):
        r = subprocess.run([TROUPE, "config", "reload", str(self.c.config), "--json"], capture_output=True, text=True, timeout=WAIT_S)
        return r.returncode, r.stdout, r.stderr

    def test_1_who_may_do_what(self):
        status, headers, body = self.ask(None)
        self.assertEqual((status, body["error"]["code"]), (401, "invalid_api_key"))
        self.assertEqual(headers["www-authenticate"], "Bearer")
        self.assertEqual(self.ask("tr-wrong")[0], 401)
        self.assertEqual(self.ask("operator")[0], 403)
        status, headers, body = self.ask("acme", **{"X-Request-Id": "mine"})
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["x-ratelimit-limit-requests"], "1000")
        self.assertEqual(headers["x-ratelimit-limit-tokens"], "3800000")
        # Of a burst of 5 % of the limit, and no more.
        self.assertGreater(float(headers["x-ratelimit-remaining-mu"]), 0)
        self.assertLessEqual(float(headers["x-ratelimit-remaining-mu"]), 50)
        self.assertEqual([m["id"] for m in self.get("acme", "/v1/models")[2]["data"]], ["m"])
        self.assertEqual(self.get("acme", "/debug/requests/mine")[0], 200)
        self.assertEqual(self.get("bulk", "/debug/requests/mine")[0], 404)
        self.assertEqual(self.get("operator", "/debug/requests/mine")[2]["tenant"], "acme")
        for path in ("/metrics", "/debug/workers"):
            self.assertEqual([self.get(k, path)[0] for k in (None, "acme", "operator")], [401, 403, 200], path)
        self.assertEqual(self.get(None, "/readyz")[0], 200)
        # Nobody's key is in a log.
        for node in self.c.nodes.values():
            for key, _ in self.keys.values():
                self.assertNotIn(key, node.log)

    def test_2_prefixes_are_a_tenants_own(self):
        long = {"prompt": "the same for all " * 200}
        self.ask("acme", body=long)
        wait_until(lambda: self.ask("acme", body=long)[2]["usage"]["prompt_tokens_details"]["cached_tokens"] > 1000, "acme finds its own prefix")
        self.assertEqual(self.ask("bulk", body=long)[2]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_3_a_limit_is_one_for_both_gateways(self):
        wait_until(lambda: self.ask("small")[0] == 200, "small is let in")
        for host in ("h0", "h1"):
            wait_until(lambda: self.metric("troupe_tenant_isolated", "small", host) == 0, f"{host} hears of the budget's owner")
        begun = time.monotonic()
        charged_before = self.charged("small")
        refusals = []

        def work(host):
            while time.monotonic() < begun + 12:
                status, headers, body = self.ask("small", host=host, body={"max_tokens": 60})
                if status != 200:
                    refusals.append((status, headers, body))
                    time.sleep(0.02)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(work, ["h0", "h1"] * 2))
        time.sleep(1)
        charged = self.charged("small") - charged_before
        # 6 MU a minute, and 0.3 saved up; a request that costs more than that is met on credit.
        self.assertGreaterEqual(charged, 0.6)
        self.assertLessEqual(charged, 12 * 0.1 + 0.3 + 4 * self.largest("small"))
        self.assertTrue(refusals)
        for status, headers, body in refusals:
            self.assertEqual((status, body["error"]["code"]), (429, "tenant_limit"))
            self.assertGreater(int(headers["retry-after-ms"]), 0)
            self.assertGreaterEqual(int(headers["retry-after"]) * 1000, int(headers["retry-after-ms"]) - 999)
            self.assertEqual(headers["x-ratelimit-limit-mu"], "6")
        # That is nobody else's.
        self.assertEqual(self.ask("acme")[0], 200)
        # All of it is there for either gateway: by itself each would have 5 %, 0.06 MU in so long.
        for host in ("h0", "h1"):
            alone, begun = self.metric("troupe_tenant_model_units_total", "small", host), time.monotonic()
            while time.monotonic() < begun + 12:
                if self.ask("small", host=host, body={"max_tokens": 60})[0] != 200:
                    time.sleep(0.05)
            self.assertGreaterEqual(self.metric("troupe_tenant_model_units_total", "small", host) - alone, 0.6, host)
            self.assertEqual(self.metric("troupe_tenant_isolated", "small", host), 0)

    def metric(self, name, who, host):
        found = re.search(rf'^{name}{{[^}}]*tenant="{who}"[^}}]*}} (\S+)', self.get("operator", "/metrics", host)[2], re.M)
        return float(found.group(1)) if found else 0.0

    def charged(self, who):
        return sum(self.metric("troupe_tenant_model_units_total", who, h) for h in ("h0", "h1"))

    def largest(self, who):
        """MU of its mean request, which is as good as any of them here."""
        return self.charged(who) / max(1, sum(self.metric("troupe_tenant_admitted_total", who, h) for h in ("h0", "h1")))

    def test_4_a_cap_of_requests_at_a_time(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda _: self.ask("bulk", body={"max_tokens": 400}), range(8)))
        codes = [body["error"]["code"] for status, _, body in got if status != 200]
        self.assertIn(200, [s for s, _, _ in got])
        self.assertTrue(codes and set(codes) == {"tenant_concurrency"}, codes)

    def test_5_reload(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.ask, "acme", body={"max_tokens": 1500})
            time.sleep(0.5)
            # A mistake changes nothing, at any host.
            self.c.config.write_text(self.text + tenant("second", [self.keys["second"][1]], "guaranteed_mu_per_minute = -1"))
            code, _, err = self.reload()
            self.assertNotEqual(code, 0)
            self.assertRegex(err, r"cluster.toml:\d+:\d+: `guaranteed_mu_per_minute` is the integer -1")
            self.assertEqual(self.ask("second")[0], 401)
            # Nor does a file that opens the gateways to everybody, or one that may be any of its generation.
            none = re.sub("operator_keys.*\n", "", self.text[:self.text.index("\n[[tenant]]")]).replace("[cluster]\n", "[cluster]\ngeneration = 2\n")
            for text, why in ((none, "there is no [[tenant]]"), (self.text.replace(self.file_end["bulk"], ""), "its generation is still 1")):
                self.c.config.write_text(text)
                code, _, err = self.reload()
                self.assertNotEqual(code, 0)
                self.assertIn(why, err)
                self.assertIn("nothing was changed", err)
            # Nor does what takes a restart.
            self.c.config.write_text(self.text.replace("slots = 8", "slots = 4"))
            code, _, err = self.reload()
            self.assertNotEqual(code, 0)
            self.assertIn("in pool: that takes a restart", err)
            self.assertIn("nothing was changed", err)
            # Another key for acme, a new tenant, bulk is gone.
            text = self.text.replace(self.file_end["acme"], tenant("acme", [self.keys["second"][1]], "guaranteed_mu_per_minute = 2000\nbest_effort_weight = 1")).replace(self.file_end["bulk"], "")
            self.c.config.write_text(text.replace("[cluster]\n", "[cluster]\ngeneration = 2\n"))
            code, out, err = self.reload()
            self.assertEqual(code, 0, err)
            self.assertEqual([(r["host"], r["generation"], r["applied"]) for r in json.loads(out)], [("h0", "2", "yes"), ("h1", "2", "yes")])
            for host in ("h0", "h1"):
                self.assertEqual([self.ask(k, host=host)[0] for k in ("acme", "bulk", "second")], [401, 401, 200], host)
            self.assertEqual(self.ask("second")[1]["x-ratelimit-limit-mu"], "2000")
            # What ran goes on.
            self.assertFalse(running.done())
            status, _, body = running.result()
            self.assertEqual((status, body["usage"]["completion_tokens"]), (200, 1500))
        # An older file is refused.
        self.c.config.write_text(self.text)
        code, _, err = self.reload()
        self.assertNotEqual(code, 0)
        self.assertIn("generation 1 is older than 2", err)
        self.c.config.write_text(text.replace("[cluster]\n", "[cluster]\ngeneration = 2\n"))
        self.assertEqual(self.reload()[0], 0)
        self.assertEqual(self.c.console("books", "--check", check=False)[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
