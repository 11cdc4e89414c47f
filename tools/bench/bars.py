#!/usr/bin/env python3
"""Measures what Troupe promises of a running cluster, and says for each promise whether it holds.

    tools/bench/bars.py [NAME ...] [--build release] [--json FILE]      all, or those that are named
    tools/bench/bars.py --list

Needs `cmake --build build/release --target troupe`, and for the real model what tools/setup brings. Every cluster runs on loopback and is stopped again. What is
compared is measured in one run, interleaved, since machines are noisy.
"""

import argparse
import json
import math
import socket
import statistics
import subprocess
import sys
import time

from measures import BARS, GEMMA, Answer, bar, bench, cpu_seconds, engine_name, program, resident_bytes, running, settle, simulated, words_of
import fault_bars  # noqa: F401, registers its own
import load_bars  # noqa: F401, likewise
import request_bars  # noqa: F401, likewise

# A machine that is shared wanders by a tenth from one answer to the next: of twenty pairs the bound would say more about the machine than about the two ways.
TTFT_PAIRS = 40


def split(build, **options):
    """Prefill and decode apart, with the real model; `options` of both pools."""
    return running(build, hosts=2, **GEMMA, pools=[
        dict(name="p", role="prefill", hosts=["h0"], engine="llama", threads=2, **options), dict(name="d", role="decode", hosts=["h1"], engine="llama", threads=2, **options)])


def together(build, **options):
    return running(build, hosts=1, **GEMMA, pools=[dict(name="b", role="both", hosts=["h0"], engine="llama", threads=2, **options)])


def upper_95(ratios):
    """Upper end of the 95 % confidence interval of the mean ratio, over pairs: log-normal, Student's t (two-sided, by the normal's value corrected for few pairs)."""
    logs = [math.log(r) for r in ratios]
    n = len(logs)
    t = 1.96 + 2.4 / (n - 1)
    return math.exp(statistics.mean(logs) + t * statistics.stdev(logs) / math.sqrt(n))


@bar("ttft")
def ttft(build):
    """TTFT of a 4,000-token prompt: prefill and decode apart against one worker, interleaved pairs."""
    pairs, exposed = [], []
    with split(build, prefix_reuse=False) as apart, together(build, prefix_reuse=False) as one:
        for pair in range(1 + TTFT_PAIRS):
            times = {}
            for cluster in ((apart, one) if pair % 2 == 0 else (one, apart)):
                answer = Answer(cluster, {"model": "m", "prompt": words_of(3990, 1000 + pair), "max_tokens": 2, "temperature": 0})
                times[cluster] = answer.ttft
                if cluster is apart:
                    exposed.append(answer.timeline(cluster)["attempts"][-1]["transfer"]["exposed_ms"])
            if pair > 0:  # the first warms up
                pairs.append(times[apart] / times[one])
    bound = upper_95(pairs)
    yield "TTFT, apart ÷ together: upper 95 % bound of the paired ratio", f"{bound:.3f} (median {statistics.median(pairs):.3f}, {len(pairs)} pairs)", "≤ 1.05", bound <= 1.05
    yield "transfer time not hidden", f"median {statistics.median(exposed):.1f} ms, max {max(exposed):.1f} ms", "≤ 50 ms", max(exposed) <= 50


@bar("second-turn")
def second_turn(build):
    """Second turn of a 4,000-token chat with a 200-token suffix."""
    ratios, worst, block = [], 0, 512
    with split(build) as apart, together(build) as one:
        for pair in range(6):
            times = {}
            for cluster in ((apart, one) if pair % 2 == 0 else (one, apart)):
                messages = [{"role": "user", "content": words_of(3800, 2000 + pair)}]
                first = Answer(cluster, {"model": "m", "messages": messages, "max_tokens": 16, "temperature": 0})
                settle(cluster)
                messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": words_of(200, 3000 + pair)}]
                second = Answer(cluster, {"model": "m", "messages": messages, "max_tokens": 4, "temperature": 0})
                times[cluster] = second.ttft
                if cluster is apart:
                    transfer = second.timeline(cluster)["attempts"][-1].get("transfer")
                    new = second.usage["prompt_tokens"] - first.usage["prompt_tokens"]
                    if transfer:
                        worst = max(worst, transfer["to_token"] - transfer["from_token"] - new)
            ratios.append(times[apart] / times[one])
    yield "tokens transferred beyond the suffix", str(worst), f"≤ one block ({block} bytes)", worst <= block // 4
    middle = statistics.median(ratios)
    yield "TTFT of the second turn, apart ÷ together", f"median {middle:.3f} ({min(ratios):.3f}–{max(ratios):.3f})", "≤ 1.1", middle <= 1.1


@bar("wire-bytes")
def wire_bytes(build):
    """KV bytes on the wire against tokens × bytes per token; and decode computes no prompt."""
    with split(build, prefix_reuse=False) as apart:
        worst = 0.0
        for index, tokens in enumerate((50, 700, 3000)):
            answer = Answer(apart, {"model": "m", "prompt": words_of(tokens, 4000 + index), "max_tokens": 4, "temperature": 0})
            transfer = answer.timeline(apart)["attempts"][-1]["transfer"]
            moved = transfer["to_token"] - transfer["from_token"]
            if moved != answer.usage["prompt_tokens"] - 1:
                raise RuntimeError(f"{moved} tokens moved of a prompt of {answer.usage['prompt_tokens']}")
            per_token = next(w for w in apart.workers() if w["role"] == "decode")["kv_bytes_per_token"]
            overhead = transfer["bytes"] - moved * per_token
            worst = max(worst, overhead / transfer["pieces"])
            if overhead < 0:
                raise RuntimeError(f"fewer bytes than tokens × {per_token}: {transfer}")
        settle(apart)
        prefilled = next(w for w in apart.workers() if w["role"] == "decode")["prefilled_tokens"]
    yield "bytes beyond tokens × bytes per token, per piece", f"{worst:.0f}", "headers only (≤ 16 KiB)", worst <= 16384
    yield "prompt tokens that decode computed itself", str(prefilled), "0", prefilled == 0


@bar("engine-kv")
def engine_kv(build):
    """KV from engine to engine, export and import included: prefill has the prompt in its cache, decode keeps nothing, so nothing is computed meanwhile."""
    for lane, decode_host, hosts in (("tcp", "h1", 2), ("shared memory", "h0", 1)):
        pools = [dict(name="p", role="prefill", hosts=["h0"], engine="llama", threads=1),
                 dict(name="d", role="decode", hosts=[decode_host], engine="llama", threads=1, prefix_reuse=False)]
        with running(build, hosts=hosts, **GEMMA, pools=pools) as cluster:
            body = {"model": "m", "prompt": words_of(6000, 6000), "max_tokens": 1, "temperature": 0}
            Answer(cluster, body)
            speeds, transport, size = [], "", 0
            for _ in range(5):
                settle(cluster)
                attempt = Answer(cluster, body).timeline(cluster)["attempts"][-1]
                transfer, cached = attempt["transfer"], attempt["prefill"]["cached_tokens"]
                if cached < transfer["to_token"] - transfer["from_token"] - 1:
                    raise RuntimeError(f"prefill had only {cached} tokens: {transfer}")
                size, transport = transfer["bytes"] / 2**20, transfer["transport"]
                speeds.append(size / (transfer["ms"] / 1000))
        yield f"KV from engine to engine, {lane} ({transport}), {size:.0f} MiB", f"median {statistics.median(speeds):.0f} MiB/s", "printed", True


@bar("idle")
def idle(build):
    """CPU of an idle engine."""
    with split(build) as cluster:
        Answer(cluster, {"model": "m", "prompt": "Hello", "max_tokens": 4})
        settle(cluster)
        time.sleep(2)
        engines = {engine_name(pid): pid for node in cluster.nodes.values() for pid in node.engines()}
        before = {name: cpu_seconds(pid) for name, pid in engines.items()}
        start = time.perf_counter()
        time.sleep(20)
        seconds = time.perf_counter() - start
        shares = {name: (cpu_seconds(pid) - before[name]) / seconds for name, pid in engines.items()}
    yield "CPU of an idle engine, share of a core", ", ".join(f"{name} {share:.2%}" for name, share in shares.items()), "≤ 1 %", max(shares.values()) <= 0.01


@bar("added-latency")
def added_latency(build):
    """Request and response through node and engine, zero compute."""
    with simulated(build) as cluster:
        result = bench(cluster, build, "--model", "m", "--rate", 100, "--duration", 20, "--prompt-bytes", 200, "--max-tokens", 1, "--no-stream")
        p50, p99 = result["whole_answer_ms"]["p50"], result["whole_answer_ms"]["p99"]
        yield "added latency at 100 requests/s", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, {result['failed']} errors", "≤ 1 ms, ≤ 3 ms", p50 <= 1 and p99 <= 3 and result["failed"] == 0


@bar("token-cpu")
def token_cpu(build):
    """Node CPU per streamed token, 64 streams paced at 10 ms."""
    with simulated(build, decode_step_us=10000) as cluster:
        node = cluster.nodes["h0"].pid
        result = bench(cluster, build, "--model", "m", "--connections", 64, "--duration", 20, "--prompt-bytes", 200, "--max-tokens", 100, "--cpu-of", node)
        micros = result["cpu"][0]["us_per_token"]
        yield "node CPU per streamed token, 64 streams at 10 ms", f"{micros:.1f} µs at {result['tokens_per_second']:.0f} tokens/s, {result['failed']} errors", "≤ 18 µs", micros <= 18


@bar("disconnect")
def disconnect(build):
    """Client disconnect in the middle of a 6,000-token prefill."""
    times = []
    with split(build, prefix_reuse=False) as cluster:
        for index in range(5):
            body = json.dumps({"model": "m", "prompt": words_of(5900, 5000 + index), "max_tokens": 64, "stream": True}).encode()
            client = socket.create_connection(("127.0.0.1", cluster.gateway_port))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(2.0 + 0.7 * index)
            if all(w["idle"] for w in cluster.workers()):
                raise RuntimeError("the prefill was over before the client left")
            client.close()
            times.append(settle(cluster))
            used = [w["kv_used_tokens"] for w in cluster.workers()]
            if any(used):
                raise RuntimeError(f"KV still used: {used}")
    yield "disconnect in mid-prefill: both workers idle, all KV free", f"max {max(times) * 1000:.0f} ms of {len(times)}", "≤ 200 ms", max(times) <= 0.2


@bar("memory")
def memory(build):
    """Memory of a node after 10,000 requests, as many at a time as it can serve."""
    with simulated(build) as cluster:
        node = cluster.nodes["h0"].pid
        arguments = ("--model", "m", "--connections", 16, "--requests", 1000, "--prompt-bytes", 400, "--max-tokens", 8)
        bench(cluster, build, *arguments)
        at_1000 = resident_bytes(node)
        sizes = []
        for _ in range(9):
            bench(cluster, build, *arguments)
            sizes.append(resident_bytes(node))
        worst = max(abs(size / at_1000 - 1) for size in sizes)
        yield ("memory of a node from request 1,000 to 10,000", f"{at_1000 / 1e6:.1f} MB, then " + " ".join(f"{s / 1e6:.1f}" for s in sizes) + f" ({worst:.1%})", "± 5 %", worst <= 0.05)


# What the quickstart's machine serves well: a person reads some 5 words a second.
MU_TTFT_MS, MU_TPOT_MS = 5000, 200


@bar("mu-model")
def mu_model(build):
    """Model units of the real model: calibrated on a running cluster, and held against workloads that were not fitted. About 15 minutes."""
    with together(build) as cluster:
        folder = cluster.config.parent
        report, costs = folder / "calibration.json", folder / "costs.toml"
        subprocess.run([program(build), "bench", "calibrate", "--url", cluster.url, "--model", "m", "--output", costs, "--json", report,
                        "--ttft-ms", str(MU_TTFT_MS), "--tpot-ms", str(MU_TPOT_MS), "--concurrency-max", "16"], check=True)
        found = json.loads(report.read_text())
    held_out = found["held_out"]
    for one in [*held_out["workloads"], {"name": "all", **held_out}]:
        print(f"    {one['name']}: median {one['median_error']:.1%}, p90 {one['p90_error']:.1%}, bias {one['bias']:+.1%} of {one['requests']} requests; at the usual batch "
              f"median {one['usual_median_error']:.1%}, p90 {one['usual_p90_error']:.1%}, bias {one['usual_bias']:+.1%}", flush=True)
    print(f"    {found['seconds_per_mu']:.3f} s for a unit; {found['mu_per_minute']:.2f} MU/min at p95 TTFT {MU_TTFT_MS} ms and TPOT {MU_TPOT_MS} ms", flush=True)
    yield ("error of predicted costs, held-out workloads, each at the batch that it had",
           f"median {held_out['median_error']:.1%} (p90 {held_out['p90_error']:.1%}, bias {held_out['bias']:+.1%}; at the usual batch median {held_out['usual_median_error']:.1%})", "median ≤ 10 %",
           held_out["median_error"] <= 0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=str)
    parser.add_argument("--build", default="release", help="which build/<preset> to measure (default: release)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, function in BARS.items():
            print(f"{name:14} {function.__doc__.splitlines()[0]}")
        return 0
    rows, failed = [], 0
    for name in options.names or BARS:
        print(f"{name}: {BARS[name].__doc__}", flush=True)
        try:
            for what, figure, wanted, holds in BARS[name](options.build):
                rows.append({"bar": name, "what": what, "figure": figure, "wanted": wanted, "holds": holds})
                print(f"  {'holds ' if holds else 'SHORT '} {what}: {figure} (wanted: {wanted})", flush=True)
                failed += not holds
        except (AssertionError, RuntimeError, OSError, KeyError, StopIteration, subprocess.SubprocessError) as e:
            rows.append({"bar": name, "what": BARS[name].__doc__, "figure": None, "wanted": None, "holds": False, "error": f"{type(e).__name__}: {e}"})
            print(f"  ERROR  {type(e).__name__}: {e}", flush=True)
            failed += 1
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=2, ensure_ascii=False)
    print(f"{sum(r['holds'] for r in rows)} of {len(rows)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
