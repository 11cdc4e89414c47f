"""What requests cost, through real processes: measured by `troupe bench calibrate`, read by the next cluster, told of each request.

How this can fail: what was calibrated is not what the engine takes; a calibration is not used, or is used on other hardware without being told; a node starts with a file that makes no sense.
"""

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from cluster import TROUPE, Cluster, wait_until  # noqa: E402

# The time model of a simulated engine is what a calibration has to find.
PREFILL_TOKENS_PER_SECOND, STEP_US, STREAM_US = 20_000, 4_000, 1_000
SIMULATION = dict(prefill_tokens_per_second=PREFILL_TOKENS_PER_SECOND, decode_step_us=STEP_US, decode_us_per_stream=STREAM_US)
POOL = dict(role="both", hosts=["h0"], simulation=SIMULATION)
GOOD = """[costs]
model = "m"
device_class = "simulated"
alpha = 5e-05
beta = 0.001
beta_step = 0.004
"""


def calibrate(c, *words, seconds=120):
    return subprocess.run([TROUPE, "bench", "calibrate", "--url", c.url, *map(str, words)], capture_output=True, text=True, timeout=seconds)


def metric(c, name, **labels):
    """The sum of a metric's series with these labels."""
    total = 0.0
    for line in c.get("/metrics")[1].splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


class Costs(unittest.TestCase):
    def answer(self, c, prompt, name, **more):
        status, body = c.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 16, "ignore_eos": True, **more}, headers={"X-Request-Id": name})
        self.assertEqual(status, 200, body)
        return wait_until(lambda: (t := c.timeline(name)).get("model_units") and t, f"the costs of {name}")

    def test_calibrated_costs_are_the_engines_and_the_next_cluster_takes_them(self):
        with Cluster(hosts=1, pools=[POOL]) as c:
            c.start()
            c.wait_ready()
            worker = c.workers()[0]
            self.assertEqual(worker["device_class"], "simulated")
            costs, report = c.folder / "costs.toml", c.folder / "report.json"
            done = calibrate(c, "--output", costs, "--json", report, "--prompt-tokens", "100,400,1600", "--output-tokens", "8,40", "--held-out", 12,
                             "--ttft-ms", 1000, "--tpot-ms", 10, "--concurrency-max", 8)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            found = json.loads(report.read_text())
            self.assertAlmostEqual(found["alpha"], 1 / PREFILL_TOKENS_PER_SECOND, delta=0.3 / PREFILL_TOKENS_PER_SECOND)
            one, many = found["beta"] + found["beta_step"], found["beta"] + found["beta_step"] / 8
            self.assertAlmostEqual(one, (STEP_US + STREAM_US) / 1e6, delta=0.3 * (STEP_US + STREAM_US) / 1e6)
            self.assertAlmostEqual(many, (STEP_US / 8 + STREAM_US) / 1e6, delta=0.5 * (STEP_US / 8 + STREAM_US) / 1e6)
            self.assertEqual(len(found["held_out"]["workloads"]), 4)
            # The machine is shared and the passes take milliseconds: what is right on it is not far off here.
            self.assertLess(found["held_out"]["median_error"], 0.3, done.stdout)
            # Steps are shared by one to eight there: one batch for all is further off.
            self.assertGreater(found["held_out"]["usual_median_error"], found["held_out"]["median_error"], done.stdout)
            self.assertGreater(found["mu_per_minute"], 0, done.stdout)
            # Eight streams take 12 ms a step: beyond the objective of 10.
            self.assertTrue(any(not level["meets"] for level in found["capacity"]), done.stdout)
            text = costs.read_text()
            self.assertFalse(costs.with_suffix(".toml.new").exists())
            # Requests of this cluster are priced by what the engine said of itself when it was loaded.
            self.assertEqual(self.answer(c, "x" * 400, "measured")["model_units"]["costs"], "measured")
        with Cluster(hosts=1, pools=[dict(POOL, costs="costs.toml")]) as c:
            (c.folder / "costs.toml").write_text(text)
            c.start()
            c.wait_ready()
            t = self.answer(c, "y" * 400, "calibrated")
            units, cost = t["model_units"], t["cost"]
            self.assertEqual(units["costs"], "calibrated")
            self.assertFalse(cost["guessed"])
            self.assertEqual(cost["sampled_tokens"], 16)
            unit = metric(c, "troupe_model_unit_seconds", model="m")

            def seconds_by_file(shares):
                return (found["alpha"] * cost["computed_tokens"] + found["alpha2"] * (2 * cost["computed_context"] + cost["computed_tokens"]) + found["beta"] * cost["sampled_tokens"]
                        + found["beta_step"] * shares + found["gamma"] * cost["sampled_context"])

            # Units are counted at the usual batch; the engine has spent what its steps shared, here with nobody.
            by_units = seconds_by_file(cost["sampled_tokens"] / found["usual_batch"])
            self.assertAlmostEqual(units["physical"] * unit, by_units, delta=0.01 * by_units)
            seconds = (cost["prefill_ms"] + cost["decode_ms"]) / 1000
            self.assertAlmostEqual(seconds_by_file(cost["step_shares"]), seconds, delta=0.35 * seconds)
            self.assertAlmostEqual(units["tenant"], units["physical"], delta=0.1 * units["physical"])
            # The same once more: what is cached is not paid for.
            again = self.answer(c, "y" * 400, "cached")
            self.assertGreater(again["cached_tokens"], 300)
            self.assertLess(again["model_units"]["tenant"], units["tenant"])
            both = units["tenant"] + again["model_units"]["tenant"]
            self.assertAlmostEqual(metric(c, "troupe_model_units_total", model="m", ledger="tenant"), both, places=5)

    def test_apart_both_workers_costs_are_told(self):
        pools = [dict(role="prefill", hosts=["h0"], simulation=SIMULATION), dict(role="decode", hosts=["h1"], simulation=SIMULATION)]
        with Cluster(hosts=2, pools=pools) as c:
            c.start()
            c.wait_ready()
            t = self.answer(c, "z" * 500, "apart")
            self.assertFalse(t["cost"]["guessed"], t)
            self.assertEqual(len(t["cost"]["jobs"]), 2)
            self.assertGreater(t["cost"]["computed_tokens"], 490)
            self.assertEqual(t["cost"]["sampled_tokens"], 16)
            self.assertGreater(t["cost"]["transfer_ms"], 0)

    def test_a_client_that_leaves_has_what_was_computed_on_the_books(self):
        with Cluster(hosts=1, pools=[POOL]) as c:
            c.start()
            c.wait_ready()
            events = c.stream("/v1/completions", {"model": "m", "prompt": "q" * 600, "max_tokens": 2000, "ignore_eos": True}, headers={"X-Request-Id": "left"})
            for _ in range(5):
                next(events)
            events.close()
            t = wait_until(lambda: (t := c.timeline("left")).get("model_units") and t, "the costs of the request")
            self.assertEqual(t["status"], "cancelled")
            self.assertFalse(t["cost"]["guessed"], t)
            self.assertGreaterEqual(t["cost"]["sampled_tokens"], 5)
            self.assertGreater(t["model_units"]["tenant"], 0)
            self.assertLessEqual(t["model_units"]["tenant"], t["model_units"]["physical"] * 1.001)

    def test_costs_of_other_hardware_are_refused_unless_told(self):
        other = GOOD.replace("simulated", "NVIDIA H200, 99 layers")
        with Cluster(hosts=1, pools=[dict(POOL, costs="costs.toml")]) as c:
            (c.folder / "costs.toml").write_text(other)
            node = c.start()
            node.wait_for("was calibrated on ")
            state = wait_until(lambda: (w := c.console("directory")) and next((e for e in w if e["name"].startswith("both/")), None), "the engine's entry")
            wait_until(lambda: next(e for e in c.console("directory") if e["name"] == state["name"])["state"] == "failed", "a failed engine")
            status, body = c.get("/readyz")
            self.assertEqual(status, 503)
            self.assertRegex(json.dumps(body), "costs_of_other_hardware")
        with Cluster(hosts=1, pools=[dict(POOL, costs="costs.toml", costs_of_other_hardware=True)]) as c:
            (c.folder / "costs.toml").write_text(other)
            c.start()
            c.wait_ready()
            self.assertEqual(self.answer(c, "x", "told")["model_units"]["costs"], "calibrated")

    def test_a_file_that_makes_no_sense_starts_no_node(self):
        for text, why in ((None, "cannot be opened"), (GOOD.replace("alpha = 5e-05", "alpha = -1.0"), r"costs.toml:4:9: `alpha` is the number -1"),
                          (GOOD.replace('"m"', '"other"'), 'calibrated for model "other"')):
            with self.subTest(why), Cluster(hosts=1, pools=[dict(POOL, costs="costs.toml")]) as c:
                if text:
                    (c.folder / "costs.toml").write_text(text)
                node = c.start()
                self.assertEqual(node.wait(), 3, node.log)
                self.assertRegex(node.log, why)
                checked = subprocess.run([TROUPE, "config", "check", c.config], capture_output=True, text=True)
                self.assertEqual(checked.returncode, 1)
                self.assertRegex(checked.stderr, why)

    def test_calibrate_says_what_it_cannot_do(self):
        with Cluster(hosts=1, pools=[POOL]) as c:
            out = c.folder / "costs.toml"
            done = calibrate(c, "--output", out)
            self.assertEqual(done.returncode, 1)
            self.assertFalse(out.exists())
            c.start()
            c.wait_ready()
            report = c.folder / "report.json"
            for words, code, why in ((("--json", report, "--output", c.folder / "none" / "x.toml"), 2, "cannot be written"),
                                     (("--output", out, "--json", report, "--model", "other"), 1, 'no engine of "other" is ready'),
                                     (("--output", out, "--ca-file", "x"), 2, "no effect")):
                done = calibrate(c, *words)
                self.assertEqual((done.returncode, bool(re.search(why, done.stderr))), (code, True), done.stderr)
            self.assertEqual([x.name for x in c.folder.iterdir() if x.name.startswith((out.name, report.name))], [])


if __name__ == "__main__":
    unittest.main()
