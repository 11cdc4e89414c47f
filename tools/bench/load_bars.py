"""What clients get while router shards are restarted, and while more is asked for than there is: measured on real processes with simulated engines."""

import collections
import json
import random
import signal
import statistics
import subprocess
import time

from measures import bar, new_key, program, running

# -- what clients saw ---------------------------------------------------------


class Load:
    """`troupe bench run` in the background, at all gateways of a cluster. `answers()`: what it got, by request, once it has ended."""

    def __init__(self, cluster, build, *arguments):
        self.file = cluster.folder / f"answers-{time.monotonic_ns()}.jsonl"
        self.began = time.monotonic()
        urls = [word for port in cluster.gateway_ports.values() for word in ("--url", f"http://127.0.0.1:{port}")]
        self.process = subprocess.Popen(
            [program(build), "bench", "run", *urls, "--endpoint", "completions", "--model", "m", "--temperature", "0", "--ignore-eos", "--answers", self.file, *map(str, arguments)], stdout=subprocess.DEVNULL)

    def seconds(self):
        """Since the start, as `at_ms` of the answers counts."""
        return time.monotonic() - self.began

    def stop(self):
        """No further requests; those that are open leave no trace."""
        self.process.send_signal(signal.SIGINT)
        return self.answers()

    def answers(self):
        if self.process.wait(600) < 0:
            raise RuntimeError(f"troupe bench ended with {self.process.returncode}")
        return [json.loads(line) for line in self.file.read_text().splitlines()]


def between(answers, begin_s, end_s):
    """Those whose requests were due then."""
    return [a for a in answers if begin_s <= a["at_ms"] / 1000 < end_s]


def reasons(answers):
    return " ".join(f"{count} × {what}" for what, count in collections.Counter(f"{a['error']} {a['message']}"[:80] for a in answers).most_common(3))


# -- router shards, restarted -------------------------------------------------

BLOCK_BYTES = 512
TURNS, FIRST_BLOCKS, TURN_BLOCKS, THINK_S = 6, 4, 2, (5.0, 11.0)
SHARD_RATE, SHARD_ENGINES, SHARD_KV_TOKENS = 16, 8, 130_000
SHARD_WARMUP_S, STEADY_S, AFTER_S, LOST_S = 60, 90, 60, 30
SHARD_HOSTS, ENGINE_HOSTS = ["h0", "h1", "h2", "h3"], ["h4", "h5"]


def conversations(rate, duration_s, seed):
    """Turns of growing conversations, as rows of a trace: each asks with all that was said before and two blocks more, some seconds after the one before. `rate`: turns a second, on average.

    Conversations begin at even times, and are as long as each other, so that what one phase asks for is what the others ask for, too.
    """
    draw, rows, block = random.Random(seed), [], 0
    every = TURNS / rate
    for number in range(int(duration_s / every)):
        at = number * every + draw.uniform(0, every)
        blocks = []
        for turn in range(TURNS):
            more = FIRST_BLOCKS if turn == 0 else TURN_BLOCKS
            blocks = blocks + list(range(block, block + more))
            block += more
            rows.append(dict(timestamp=round(at * 1000), input_length=len(blocks) * BLOCK_BYTES, output_length=16, hash_ids=blocks))
            at += draw.uniform(*THINK_S)
    return sorted((r for r in rows if r["timestamp"] < duration_s * 1000), key=lambda r: r["timestamp"])


def hit_rate(answers):
    """Cached prompt tokens, in parts of all, as clients are told."""
    return sum(a["cached_tokens"] for a in answers) / max(1, sum(a["prompt_tokens"] for a in answers))


def hit_rate_at_random(rows, seed=1):
    """What the trace's turns would find (computed, not measured) if each went to some engine: as by loads alone, where all are about equally busy. Each engine keeps what was used last."""
    draw = random.Random(seed)
    engines = [collections.OrderedDict() for _ in range(SHARD_ENGINES)]
    cached = total = 0
    for row in rows:
        kept, blocks = draw.choice(engines), row["hash_ids"]
        has = kept.pop(blocks[0], 0)
        cached, total = cached + has, total + len(blocks)
        kept[blocks[0]] = len(blocks)
        while sum(kept.values()) * BLOCK_BYTES > SHARD_KV_TOKENS:
            kept.popitem(last=False)
    return cached / total


def shard_cluster(build):
    """Shards, gateways and the control host where no engine is: who restarts those hosts takes no KV away."""
    routers = "".join(f'\n[[router]]\nhost = "{host}"\n' for host in SHARD_HOSTS[1:])  # router/0 is on h0
    # A readable notice, as a load balancer needs it; everything else as it is by default.
    extra = f'{routers}\n[control]\nhost = "{SHARD_HOSTS[-1]}"\nstate = "control.db"\n\n[limits]\ndrain_notice = "5s"\n'
    pools = [dict(name="b", role="both", hosts=ENGINE_HOSTS, engines_per_host=SHARD_ENGINES // len(ENGINE_HOSTS), slots=16, kv_tokens=SHARD_KV_TOKENS, cached_prefixes=512,
                  simulation=dict(prefill_tokens_per_second=20_000, decode_step_us=2_000))]
    return running(build, hosts=len(SHARD_HOSTS + ENGINE_HOSTS), pools=pools, gateway=SHARD_HOSTS, context_tokens=16_384, extra=extra)


def wait_for_shard(cluster, host, seconds=60.0):
    """Until the host's gateway says that it is ready, which is what an operator waits for before the next."""
    end, port = time.monotonic() + seconds, cluster.gateway_ports[host]
    while True:
        try:
            cluster.gateway_port = port
            if cluster.ready():
                return
        finally:
            cluster.gateway_port = cluster.gateway_ports[SHARD_HOSTS[0]]
        if time.monotonic() > end:
            raise RuntimeError(f"{host} is not ready after {seconds:.0f} s:\n{cluster[host].log[-2000:]}")
        time.sleep(0.1)


@bar("shards")
def shards(build):
    """4 router shards with a control host are restarted one after another, node by node, under growing conversations on 8 engines that keep a part of them; new requests go where /readyz says yes, none is sent twice."""
    longest = SHARD_WARMUP_S + STEADY_S + AFTER_S + LOST_S + len(SHARD_HOSTS) * 120
    rows = conversations(SHARD_RATE, longest, seed=11)
    with shard_cluster(build) as cluster:
        trace = cluster.folder / "conversations.jsonl"
        trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
        load = Load(cluster, build, "--trace", trace, "--bytes-per-token", 1, "--max-tokens", 16, "--request-timeout", 60)
        try:
            time.sleep(SHARD_WARMUP_S + STEADY_S)
            restarts, exits = load.seconds(), []
            for host in SHARD_HOSTS:
                cluster[host].signal(signal.SIGTERM)
                exits.append(cluster[host].wait(90))
                cluster.start(host)
                wait_for_shard(cluster, host)
            restarted = load.seconds()
            time.sleep(AFTER_S)
            killed = load.seconds()
            # For contrast: all shards end at once, and nobody is there to give anything to.
            for host in SHARD_HOSTS:
                cluster[host].destroy()
            cluster.start(*SHARD_HOSTS)
            for host in SHARD_HOSTS:
                wait_for_shard(cluster, host)
            begun = load.seconds()
            time.sleep(LOST_S)
        finally:
            got = load.stop()
    steady, during, after, lost = (between(got, *span) for span in ((SHARD_WARMUP_S, restarts), (restarts, restarted), (restarted, killed - 1), (begun + 1, begun + LOST_S - 2)))
    measured = steady + during + after
    failed = [a for a in measured if a["error"]]
    asked = sum(r["input_length"] for r in rows if r["timestamp"] / 1000 < killed and len(r["hash_ids"]) == FIRST_BLOCKS + (TURNS - 1) * TURN_BLOCKS)
    before, then = hit_rate(steady), hit_rate(during + after)
    print(f"    of {asked:,} tokens of whole conversations engines keep {SHARD_ENGINES * SHARD_KV_TOKENS:,}; at random engines, by loads alone, {hit_rate_at_random([r for r in rows if r['timestamp'] / 1000 < killed]):.1%} "
          f"would be found (computed); all shards killed at once and started again: {hit_rate(lost):.1%} of {len(lost)} requests", flush=True)
    yield f"{len(measured)} requests, {len(SHARD_HOSTS)} nodes with a shard restarted in {restarted - restarts:.0f} s: failed", f"{len(failed)} {reasons(failed)}", "0", not failed and bool(during)
    yield "exit codes of the nodes", str(exits), "0", exits == [0] * len(SHARD_HOSTS)
    yield ("prefix hit rate during and after the restarts, against before", f"{then:.1%} against {before:.1%} (during {hit_rate(during):.1%} of {len(during)} requests, after {hit_rate(after):.1%} of {len(after)}, before of {len(steady)})",
           "at most 2 points below", then >= before - 0.02)


# -- more than there is -------------------------------------------------------

# A GPU's proportions: decode steps that grow with the batch, prompts that take as much time as answers, and slots that limit both.
OVERLOAD_HOSTS, OVERLOAD_SLOTS = ["h0", "h1"], 32
OVERLOAD_ENGINES_PER_HOST = 2
OVERLOAD_SIMULATION = dict(prefill_tokens_per_second=8_000, decode_step_us=20_000, decode_us_per_stream=250)
OVERLOAD_REQUESTS = ("--prompt-bytes", "200:1800", "--max-tokens", "32:96", "--request-timeout", 60)
CAPACITY_S, UNCONTENDED_S, LIGHT_S, OVERLOAD_S, SETTLE_S = 40, 90, 40, 60, 15
OVERLOAD_FACTOR, UNCONTENDED_PART, LIGHT_PART = 5, 0.7, 0.1


def overload_cluster(build, tenants):
    pools = [dict(name="b", role="both", hosts=OVERLOAD_HOSTS, engines_per_host=OVERLOAD_ENGINES_PER_HOST, slots=OVERLOAD_SLOTS, kv_tokens=131_072, simulation=OVERLOAD_SIMULATION)]
    return running(build, hosts=len(OVERLOAD_HOSTS), pools=pools, gateway=OVERLOAD_HOSTS, extra='\n[[router]]\nhost = "h1"\n\n[limits]\n' + tenants)


def goodput(answers, begin_s, end_s):
    """Tokens a second of answers that ended then, whole; and such answers a second."""
    whole = [a for a in answers if not a["error"] and begin_s <= (a["at_ms"] + a["end_ms"]) / 1000 < end_s]
    return sum(a["tokens"] for a in whole) / (end_s - begin_s), len(whole) / (end_s - begin_s)


def p95_ttft(answers, begin_s, end_s):
    """Milliseconds from when a request was due until its first token; of those that got an answer."""
    return statistics.quantiles([a["first_token_ms"] for a in between(answers, begin_s, end_s) if not a["error"]], n=20)[-1]


def open_loop(cluster, build, rate, duration_s, *more):
    """Each rate with prompts of its own: the ones before are cached."""
    return Load(cluster, build, "--rate", rate, "--duration", SETTLE_S + duration_s, "--seed", round(rate * 100), *OVERLOAD_REQUESTS, *more).answers()


@bar("overload")
def overload(build):
    """Five times what the engines can do, by a tenant with a share and everything else by default: goodput, the first token's time of who is let in, and what the others are told.

    Capacity is what the engines give in a closed loop without any tenants, so without admission: the better of as many requests at a time as there are slots, and a quarter more. "Uncontended" is an open loop at 70 % of that: a person would call
    a fleet at 70 % healthy, and arrivals at random meet each other there, as everywhere; p95 at 10 %, where nobody meets anybody, is printed beside it.
    The first SETTLE_S of each part are not counted: batches grow, and some ten seconds pass until a crowd is no burst any more, while whoever is let in waits up to `wait_max`.
    """
    slots = len(OVERLOAD_HOSTS) * OVERLOAD_ENGINES_PER_HOST * OVERLOAD_SLOTS
    capacity, rate = 0, 0
    with overload_cluster(build, "") as cluster:
        for connections in (slots, slots + slots // 4):
            end = SETTLE_S + CAPACITY_S
            answers = Load(cluster, build, "--connections", connections, "--duration", end, *OVERLOAD_REQUESTS).answers()
            tokens, requests = goodput(answers, SETTLE_S, end)
            print(f"    {connections} requests at a time, no admission: {tokens:.0f} tokens/s, {requests:.1f} requests/s, p95 TTFT {p95_ttft(answers, SETTLE_S, end):.0f} ms", flush=True)
            capacity, rate = max((capacity, rate), (tokens, requests))
    key, digest = new_key(build, "acme")
    tenant = f'\n[[tenant]]\nname = "acme"\nkeys = ["{digest}"]\nmodels = ["m"]\n\n[[tenant.limit]]\nmodel = "m"\nbest_effort_weight = 1\n'
    with overload_cluster(build, tenant) as cluster:
        ttft = {}
        for part, duration in ((LIGHT_PART, LIGHT_S), (UNCONTENDED_PART, UNCONTENDED_S)):
            answers = open_loop(cluster, build, part * rate, duration, "--api-key", key)
            refused = [a for a in between(answers, SETTLE_S, SETTLE_S + duration) if a["error"]]
            ttft[part] = p95_ttft(answers, SETTLE_S, SETTLE_S + duration)
            print(f"    at {part:.0%} of capacity: p95 TTFT {ttft[part]:.0f} ms, {len(refused)} of {len(answers)} refused {reasons(refused)}", flush=True)
        answers = open_loop(cluster, build, OVERLOAD_FACTOR * rate, OVERLOAD_S, "--api-key", key)
    end = SETTLE_S + OVERLOAD_S
    tokens, requests = goodput(answers, SETTLE_S, end)
    late = p95_ttft(answers, SETTLE_S, end)
    refused = [a for a in answers if a["error"]]
    wrong = [a for a in refused if a["error"] not in ("http_429", "http_503") or not a["retry_after_s"]]
    waits = sorted(a["retry_after_s"] for a in refused if a["retry_after_s"])
    yield f"goodput at {OVERLOAD_FACTOR} times the capacity of {capacity:.0f} tokens/s, {OVERLOAD_S} s", f"{tokens:.0f} tokens/s, {tokens / capacity:.1%}", "≥ 95 % of capacity", tokens >= 0.95 * capacity
    yield ("p95 TTFT of who is let in, against uncontended", f"{late:.0f} ms ÷ {ttft[UNCONTENDED_PART]:.0f} ms = {late / ttft[UNCONTENDED_PART]:.2f} (at {LIGHT_PART:.0%} load {ttft[LIGHT_PART]:.0f} ms)", "≤ 1.2",
           late <= 1.2 * ttft[UNCONTENDED_PART])
    yield (f"of {len(refused)} refusals ({reasons(refused)}) without 429 or 503 and Retry-After", f"{len(wrong)} (Retry-After {waits[0] if waits else '-'} to {waits[-1] if waits else '-'} s)", "0 of some", bool(refused) and not wrong)
