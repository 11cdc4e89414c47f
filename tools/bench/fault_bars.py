"""What a fault costs: measured on real processes, with real kills."""

import json
import os
import random
import re
import signal
import statistics
import subprocess
import threading
import time
from datetime import datetime

from measures import GEMMA, Answer, bar, bench, program, running, settle, words_of

MANY_RESTARTS = '\n[health]\nrestart_intensity = 1000\nrestart_backoff_min = "100ms"\nrestart_backoff_max = "100ms"\n'


def wait_for(condition, what, seconds=60.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.01)
    return value


def ready_count(cluster):
    return sum(bool(w.get("ready")) for w in cluster.workers())


@bar("kill")
def kill(build):
    """An engine with a real model is killed in mid-stream: the client's pause, against what computing prompt and answer again takes."""
    pools = [dict(name="b", role="both", hosts=["h0"], engines_per_host=2, engine="llama", threads=1, prefix_reuse=False)]
    pauses, recomputes, lost = [], [], 0
    with running(build, hosts=1, **GEMMA, pools=pools, extra=MANY_RESTARTS) as cluster:
        for index in range(5):
            wait_for(lambda: ready_count(cluster) == 2, "two ready engines")
            prompt = words_of(600, 7000 + index)
            body = {"model": "m", "prompt": prompt, "max_tokens": 160, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
            times, text, tokens = [], "", None
            for event in cluster.stream("/v1/completions", body, timeout=120, headers={"X-Request-Id": f"killed-{index}"}):
                times.append(time.monotonic())
                if event == "[DONE]":
                    break
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                text += event["choices"][0]["text"] if event["choices"] else ""
                if len(times) == 60:
                    killed = text
                    worker = cluster.timeline(f"killed-{index}")["attempts"][-1]["decode"]["worker"]
                    os.kill(cluster["h0"].engine(worker), signal.SIGKILL)
            if len(cluster.timeline(f"killed-{index}")["attempts"]) < 2:
                raise RuntimeError("the kill came too late")
            lost += tokens != 160
            pauses.append(max(b - a for a, b in zip(times, times[1:])))
            wait_for(lambda: ready_count(cluster) == 2, "two ready engines")
            settle(cluster, 60)
            # The same work without a failure: the prompt and what was said of the answer, as one prompt.
            recomputes.append(Answer(cluster, {"model": "m", "prompt": prompt + killed, "max_tokens": 1, "temperature": 0}).ttft)
    beyond = [p - r for p, r in zip(pauses, recomputes)]
    yield ("pause of a stream whose engine is killed, beyond the recompute", f"max {max(beyond):.2f} s of {len(beyond)} (pauses {statistics.median(pauses):.2f} s, recompute {statistics.median(recomputes):.2f} s)",
           "< 2 s", max(beyond) < 2)
    yield "streams with a token lost or repeated", str(lost), "0", lost == 0


def first_logged(node, pattern, since):
    """When a line that matches was logged, in seconds of this machine's clock."""
    for line in node.log.splitlines():
        if (found := re.match(r"(\S+\+00:00) ", line)) and (at := datetime.fromisoformat(found.group(1)).timestamp()) >= since - 0.001 and re.search(pattern, line):
            return at
    return None


@bar("told")
def told(build):
    """How soon decode knows that prefill has failed, and the other way round; from the kill, over tcp."""
    for victim, other in (("prefill", "decode"), ("decode", "prefill")):
        pools = [dict(name="p", role="prefill", hosts=["h0"], slots=8, kv_tokens=65536, simulation=dict(prefill_tokens_per_second=2000)),
                 dict(name="d", role="decode", hosts=["h1"], slots=8, kv_tokens=65536)]
        took = []
        with running(build, hosts=2, pools=pools, extra=MANY_RESTARTS, arguments=("--log-level", "debug")) as cluster:
            for index in range(10):
                wait_for(lambda: ready_count(cluster) == 2, "two ready workers")
                body = {"model": "m", "prompt": words_of(900, 8000 + index), "max_tokens": 2}
                asking = threading.Thread(target=cluster.post, args=("/v1/completions", body))
                asking.start()
                wait_for(lambda: any(w["role"] == "prefill" and w.get("running") for w in cluster.workers()), "a running prefill")
                time.sleep(0.2 + 0.05 * index)
                host = "h0" if victim == "prefill" else "h1"
                witness = cluster["h1" if victim == "prefill" else "h0"]
                name = next(w["name"] for w in cluster.workers() if w["role"] == victim)
                killed = time.time()
                os.kill(cluster[host].engine(name), signal.SIGKILL)
                noticed = wait_for(lambda: first_logged(witness, rf"engine={other}/\S+ .*event=job_(failed|cancelled)", killed), f"{other} is told", 10)
                took.append((noticed - killed) * 1000)
                asking.join()
                settle(cluster, 60)
        yield f"{other} is told of {victim}'s death after", f"median {statistics.median(took):.0f} ms, max {max(took):.0f} ms of {len(took)}", "< 50 ms", max(took) < 50


STREAMS, STREAM_TOKENS, STREAM_S, KILL_EVERY_S, KILLING_S = 1000, 1000, 60.0, 5.0, 120.0


def answers_of(cluster, build, *arguments):
    """What `troupe bench` got, by request."""
    file = cluster.folder / f"answers-{time.monotonic_ns()}.jsonl"
    bench(cluster, build, "--model", "m", "--endpoint", "completions", "--connections", STREAMS, "--prompt-bytes", 200, "--max-tokens", STREAM_TOKENS, "--temperature", 0, "--ignore-eos",
          "--request-timeout", 500, "--drain-timeout", 300, "--seed", 3, "--answers", file, *arguments)
    return {a["request"]: a for a in map(json.loads, file.read_text().splitlines())}


@bar("thousand")
def thousand(build):
    """1,000 streams of 60 s and more on 3 simulated decode engines, one of them killed every 5 s for 2 minutes, and one request among them that crashes whatever runs it."""
    # A step takes as long whatever is in it, so that a stream of so many tokens lasts STREAM_S at least.
    def pools(step_us):
        return [dict(name="p", role="prefill", hosts=["h0"], engines_per_host=4, slots=64, kv_tokens=262144, simulation=dict(crash_on="do-crash-now")),
                dict(name="d", role="decode", hosts=["h1"], engines_per_host=3, slots=1000, cached_prefixes=24, step_tokens=1024, kv_tokens=2_000_000, simulation=dict(decode_step_us=step_us, crash_on="do-crash-now"))]
    requests = STREAMS * 3  # three rounds, so that streams run for as long as engines are killed
    with running(build, hosts=2, pools=pools(0)) as cluster:
        undisturbed = answers_of(cluster, build, "--requests", requests)
    crashes, killed, poison = 0, 0, []
    with running(build, hosts=2, pools=pools(int(STREAM_S / STREAM_TOKENS * 1e6)), extra=MANY_RESTARTS) as cluster:
        wait_for(lambda: ready_count(cluster) == 7, "seven ready workers")
        got = {}
        load = threading.Thread(target=lambda: got.update(answers_of(cluster, build, "--requests", requests)))
        load.start()
        time.sleep(10)

        def crash():
            connection = cluster.connection(300)
            connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "please do-crash-now, whoever computes this", "max_tokens": 50, "stream": True}), {"Content-Type": "application/json"})
            poison.extend(re.findall(r'"code":\s*"([a-z_]+)"', connection.getresponse().read().decode()))

        threading.Thread(target=crash).start()
        choose, end = random.Random(5), time.monotonic() + KILLING_S
        while time.monotonic() < end:
            engines = [p for p in cluster["h1"].engines()]
            if engines:
                os.kill(choose.choice(engines), signal.SIGKILL)
                killed += 1
            time.sleep(KILL_EVERY_S)
        load.join()
        crashes = sum(len(re.findall("event=engine_crashed", cluster[host].log)) for host in ("h0", "h1"))
        start = time.monotonic()
        settle(cluster, 30)
        free = time.monotonic() - start
    failed = [a for a in got.values() if a["error"]]
    short = [a for a in got.values() if not a["error"] and a["tokens"] != STREAM_TOKENS]
    changed = [a for a in got.values() if not a["error"] and a["digest"] != undisturbed[a["request"]]["digest"]]
    reasons = sorted({f"{a['error']} {a['message']}" for a in failed})
    yield f"{len(got)} streams, {STREAMS} at a time, {killed} engines killed: failed", f"{len(failed)} {' '.join(reasons)[:300]}", "0", not failed and len(got) == requests
    yield "truncated", str(len(short)), "0", not short
    yield "with a token lost, repeated or changed (text against an undisturbed run)", str(len(changed)), "0", not changed
    yield "the request that crashes engines", f"ended with {poison[-1:]} after {crashes} crashes", "told so, at most 3", poison[-1:] == ["request_crashes_engine"] and 1 <= crashes <= 3
    yield "everything free after the last request", f"{free:.1f} s", "≤ 5 s", free <= 5


ROLL_RATE, ROLL_TOKENS, ROLL_STREAM_S, ROLL_DRAIN_S = 2, 600, 60.0, 120


@bar("rolling")
def rolling(build):
    """Every node, then every engine of three hosts is restarted, one after another, under streams of up to 60 s, and speaks a newer version of the protocol from then on; new requests go where /readyz says yes, none is sent twice."""
    hosts = ["h0", "h1", "h2"]
    # A step takes as long whatever is in it, so that the longest stream lasts ROLL_STREAM_S.
    simulation = dict(decode_step_us=int(ROLL_STREAM_S / ROLL_TOKENS * 1e6), prefill_tokens_per_second=20_000)
    pools = [dict(name=name, role=name, hosts=hosts, slots=256, kv_tokens=1_000_000, simulation=simulation) for name in ("prefill", "decode")]
    limits = f'\n[limits]\ndrain_timeout = "{ROLL_DRAIN_S}s"\n'
    with running(build, hosts=3, pools=pools, gateway=hosts, extra=limits, env={"TROUPE_PROTOCOL_MAX": "1"}) as cluster:
        report, answers = cluster.folder / "rolling.json", cluster.folder / "rolling.jsonl"
        load = subprocess.Popen(
            [program(build), "bench", "run", "--rate", str(ROLL_RATE), "--duration", "3600", "--endpoint", "completions", "--model", "m", "--max-tokens", f"{ROLL_TOKENS // 10}:{ROLL_TOKENS}", "--temperature", "0", "--ignore-eos",
             "--drain-timeout", str(2 * ROLL_STREAM_S), "--seed", "4", "--json", report, "--answers", answers, *(x for port in cluster.gateway_ports.values() for x in ("--url", f"http://127.0.0.1:{port}"))],
            stdout=subprocess.DEVNULL)
        began = time.monotonic()
        try:
            time.sleep(ROLL_STREAM_S)  # until as many streams are open as there will be
            exits = []
            cluster.env = {}
            for host in hosts:
                cluster[host].signal(signal.SIGTERM)
                exits.append(cluster[host].wait(ROLL_DRAIN_S + 30))
                cluster.start(host)
                cluster.wait_ready()
            restarts = [cluster.console("restart", f"pool:{role}", "--within", f"{ROLL_DRAIN_S}s", seconds=3 * (ROLL_DRAIN_S + 30)) for role in ("prefill", "decode")]
        finally:
            load.send_signal(signal.SIGINT)
            load.wait(3 * ROLL_STREAM_S)
        took = time.monotonic() - began
        start = time.monotonic()
        settle(cluster, 30)
        free = time.monotonic() - start
        versions = sorted(set(re.findall(r" protocol=(\d+)", "".join(n.log for n in cluster.everything))))
        got, whole = [json.loads(line) for line in answers.read_text().splitlines()], json.loads(report.read_text())
    failed = sorted({f"{a['error']} {a['message']}" for a in got if a["error"]})
    yield f"{len(got)} requests in {took:.0f} s, 3 nodes and {sum(map(len, restarts))} engines restarted: failed", f"{whole['failed']} {' '.join(failed)[:300]}", "0", whole["failed"] == 0 and not failed
    yield "exit codes of the nodes", str(exits), "0", exits == [0, 0, 0]
    yield "versions of the protocol that links spoke", " and ".join(versions), "two", versions == ["1", "2"]
    yield "everything free after the last request", f"{free:.1f} s", "≤ 5 s", free <= 5
