"""What a request and a token cost: CPU of the node and of its engine, in the scenarios in which the peers were measured.

The engine renders, tokenises and detokenises with a real vocabulary, and computes nothing (greedy: else it would sweep over logits, too). The node limits a tenant and routes by prefixes; all else is as it is by default. The node has a core of its own, so that
what it costs to wake a thread is what it costs there; engine and load generator share the others.
"""

import contextlib
import os

from measures import GEMMA, bar, bench, new_key, running

# A prompt of 400 KB is some 100,000 tokens; of 64 KB, 32 at a time.
CONTEXT_TOKENS, KV_TOKENS = 131072, 1048576
STREAMS = 64
KIB = 1024


def new_tenant(build):
    """A key, and the lines of the cluster file that know it: under a limit that nothing here reaches, and with no end to waiting for capacity."""
    key, hashed = new_key(build, "measured")
    return key, f'\n[[tenant]]\nname = "measured"\nkeys = ["{hashed}"]\nmodels = ["m"]\n[[tenant.limit]]\nmodel = "m"\nguaranteed_mu_per_minute = 1000000000\nwait_max = "1h"\n'


class Scenario:
    """`load`: options of `troupe bench run`. `per`: what the CPU time is divided by, request or token. `wanted_us`: of the node, with one engine of role both."""

    def __init__(self, name, what, per, wanted_us, load, step_us=0):
        self.name, self.what, self.per, self.wanted_us, self.load, self.step_us = name, what, per, wanted_us, load, step_us


SCENARIOS = [
    Scenario("a", "small request, not streamed, 32 at a time", "request", 40, ["--connections", 32, "--prompt-bytes", 100, "--max-tokens", 16, "--no-stream"]),
    Scenario("b", "streamed token, unpaced, 32 streams", "token", 3, ["--connections", 32, "--prompt-bytes", 100, "--max-tokens", 128]),
    Scenario("b10", "streamed token, 64 streams at 10 ms", "token", 10, ["--connections", STREAMS, "--prompt-bytes", 100, "--max-tokens", 128], step_us=10000),
    Scenario("c", "64 KB prompt that shares 32 KB, 16 tokens streamed, 32 at a time", "request", 150,
             ["--connections", 32, "--prompt-bytes", 64 * KIB, "--shared-prefix-bytes", 32 * KIB, "--max-tokens", 16]),
    Scenario("400k", "400 KB prompt, not streamed, 2 at a time", "request", 1000, ["--connections", 2, "--prompt-bytes", 400 * KIB, "--max-tokens", 1, "--no-stream"]),
]
SECONDS, WARM_UP_SECONDS = 8, 2


@contextlib.contextmanager
def node_apart(pids):
    """`pids`: which CPUs each process gets, "first" or "others". This program, with what it starts, has the others; on one CPU nothing is changed."""
    before = sorted(os.sched_getaffinity(0))
    if len(before) > 1:
        os.sched_setaffinity(0, before[1:])
        for pid, cpus in pids.items():
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), before[:1] if cpus == "first" else before[1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Rig:
    """A cluster under measurement: one host, with a tenant."""

    def __init__(self, cluster, build, key):
        self.cluster, self.build, self.key = cluster, build, key
        self.node, self.engines = cluster.nodes["h0"].pid, cluster.nodes["h0"].engines()

    def run(self, *load, seconds=SECONDS):
        with node_apart({self.node: "first", **{pid: "others" for pid in self.engines}}):
            return bench(self.cluster, self.build, "--model", "m", "--api-key", self.key, "--temperature", 0, "--duration", WARM_UP_SECONDS + seconds, "--warmup", WARM_UP_SECONDS,
                         "--cpu-of", ",".join(map(str, [self.node, *self.engines])), *load)

    def cost(self, result, per):
        """CPU microseconds of the node, and of all its engines."""
        of = {use["pid"]: use[f"us_per_{per}"] for use in result["cpu"]}
        return of[self.node], sum(of[pid] for pid in self.engines)


@contextlib.contextmanager
def rig(build, roles, step_us=0):
    """A pool with one simulated engine for each role."""
    key, tenant = new_tenant(build)
    pools = [dict(name=role, role=role, hosts=["h0"], slots=STREAMS, kv_tokens=KV_TOKENS, simulation=dict(decode_step_us=step_us)) for role in roles]
    with running(build, hosts=1, **GEMMA, context_tokens=CONTEXT_TOKENS, pools=pools, extra=tenant) as cluster:
        yield Rig(cluster, build, key)


def costs(build, roles, promised):
    """Each scenario in turn, as rows of a bar; `promised`: whether the node's figure is held against its bound."""
    for s in SCENARIOS:
        with rig(build, roles, s.step_us) as r:
            result = r.run(*s.load)
            node, engines = r.cost(result, s.per)
        yield (f"({s.name}) {s.what}: CPU per {s.per}",
               f"node {node:.1f} µs, engine {engines:.1f} µs, sum {node + engines:.1f} µs; {result['requests_per_second']:.0f} requests/s, {result['failed']} errors",
               f"node ≤ {s.wanted_us} µs" if promised else "printed", result["failed"] == 0 and (not promised or node <= s.wanted_us))


OPEN_LOOP = ["--prompt-bytes", 4 * KIB, "--max-tokens", 16]
OPEN_LOOP_SHARE = 0.7


def open_loop(build, roles, promised):
    """TTFT at a share of what a closed loop gets; the engine's own part, of which nothing else than the cluster's answers tells, is in it."""
    with rig(build, roles) as r:
        most = r.run("--connections", 128, *OPEN_LOOP)["requests_per_second"]
        result = r.run("--rate", f"{OPEN_LOOP_SHARE * most:.1f}", *OPEN_LOOP)
        p50, p99 = result["ttft_ms"]["p50"], result["ttft_ms"]["p99"]
    yield (f"(d) 4 KB prompts, open loop at {OPEN_LOOP_SHARE:.0%} of {most:.0f} requests/s: TTFT, rendering and tokenising included", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, {result['failed']} errors",
           "p50 ≤ 0.4 ms, p99 ≤ 1.5 ms" if promised else "printed", result["failed"] == 0 and (not promised or (p50 <= 0.4 and p99 <= 1.5)))


@bar("request-cpu")
def request_cpu(build):
    """CPU per request and per token, one engine of role both, with limits and prefix-aware routing."""
    yield from costs(build, ["both"], True)
    yield from open_loop(build, ["both"], True)


@bar("request-cpu-apart")
def request_cpu_apart(build):
    """The same with prefill and decode apart."""
    yield from costs(build, ["prefill", "decode"], False)
    yield from open_loop(build, ["prefill", "decode"], False)
