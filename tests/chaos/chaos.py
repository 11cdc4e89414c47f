"""What the chaos scenarios share: a cluster of three hosts with simulated engines under a steady load of `troupe bench`, streams whose every byte is known, and the questions that
are asked after each fault: was a request lost, did a stream change, do the books balance, is everybody back in work?"""

import functools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
from cluster import Cluster, Stream, engine_name, wait_until  # noqa: E402

BODY = {"model": "m", "prompt": "a story about one day " * 20, "max_tokens": 400, "temperature": 0, "ignore_eos": True}
PACE = dict(decode_step_us=20000, prefill_tokens_per_second=20000)
BOOKS_S = 5.0  # from the last request until nothing is held
STREAM_S = 300.0  # for a stream of real engines on a machine that is busy otherwise; pauses are judged, not this
BACK_S = 30.0  # until an engine serves again, its start included


def pool(role, *hosts, **more):
    simulation = {**PACE, **more.pop("simulation", {})}
    return dict(role=role, hosts=list(hosts), slots=64, kv_tokens=262144, simulation=simulation, **more)


APART = [pool("prefill", "h0", "h1"), pool("decode", "h1", "h2", engines_per_host=1)]


def ready_workers(c):
    return {w["name"] for w in c.workers() if w.get("ready")}


class Load:
    """`troupe bench run` beside a scenario; `finish()` ends with what it counted."""

    def __init__(self, c, *, rate=8, seconds=30.0, url=None, prefix=(), **more):
        self.report = c.folder / f"load-{time.monotonic_ns()}.json"
        arguments = [f"--{k.replace('_', '-')}={v}" for k, v in more.items()]
        self.process = subprocess.Popen(
            [*prefix, c.program, "bench", "run", "--url", url or c.url, "--endpoint", "completions", "--rate", str(rate), "--duration", str(seconds), "--max-tokens", "20:120", "--prompt-bytes", "200:6000",
             "--ignore-eos", "--seed", "7", "--json", str(self.report), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self):
        out, _ = self.process.communicate(timeout=180)
        if not self.report.exists():
            raise AssertionError(f"troupe bench ended with {self.process.returncode}:\n{out}")
        return json.loads(self.report.read_text())


class Scenario:
    """A cluster that works. `streams(n)` begins streams, `check_streams()` compares them with what an undisturbed one said. A real model's answers depend on the batch: of those that are not
    `repeatable` each must have as many tokens as were asked for."""

    def __init__(self, c, workers, load=None, body=BODY, repeatable=True):
        self.c, self.body, self.repeatable = c, body, repeatable
        c.wait_ready()
        self.everybody = wait_until(lambda: len(ready_workers(c)) == workers and ready_workers(c), lambda: f"{workers} ready workers: {c.workers()}")
        self.expected = self.answer(body)
        self.open = []
        self.failures_max = 0  # of the load; a scenario that lets some fail says why
        self.pauses = []
        self.load = Load(c, **load) if load is not None else None

    def streams(self, count, fresh=False):
        """`fresh`: each with a prompt of its own, so that nobody has its KV yet."""
        begun = []
        for _ in range(count):
            body = {**self.body, "prompt": f"{len(self.open) + len(begun)}: {self.body['prompt']}"} if fresh else self.body
            begun.append(Timed(self.c, {**body, "stream_options": {"include_usage": True}}))
            begun[-1].undisturbed = functools.cache(functools.partial(self.answer, body)) if fresh else lambda: self.expected
        self.open += begun
        return begun

    def answer(self, body):
        status, answer = self.c.post("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["text"]

    def busy(self, role):
        """Host and name of a worker that has jobs."""
        worker = wait_until(lambda: [w for w in self.c.workers() if w.get("running") and w["role"] == role], f"a running {role} worker")[0]
        return worker["host"], worker["name"]

    def check_streams(self):
        """All that were begun are whole and unchanged. Returns the longest pause of each, in seconds."""
        texts = [s.text(STREAM_S) for s in self.open]
        with ThreadPoolExecutor(16) as asking:
            undisturbed = list(asking.map(lambda s: s.undisturbed(), self.open))
        for s, got, expected in zip(self.open, texts, undisturbed):
            tokens, wanted = s.seen[-2]["usage"]["completion_tokens"], self.body["max_tokens"]
            assert tokens == wanted, f"{s.id} has {tokens} tokens, not {wanted}: {s.attempts()}"
            assert not self.repeatable or got == expected, f"{s.id} differs from byte {next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), len(expected)))}: {s.attempts()}"
        return [s.longest_pause() for s in self.open]

    def check_load(self, failures_max=0):
        if self.load is None:
            return None
        report = self.load.finish()
        assert report["whole"] > 0 and report["failed"] <= failures_max, f"{report['failed']} of {report['requests']} requests of the load failed: {json.dumps(report['errors'])}"
        return report

    def check_books(self):
        """All that anybody holds is given back, at hubs, router, workers and engines, by what these say themselves and by what they say of each other."""
        def books():
            return self.c.console("books", "--zero", check=False)

        began = time.monotonic()
        self.c.wait_idle(BOOKS_S)
        wait_until(lambda: books()[0] == 0, lambda: f"books at zero: {books()[1]}", max(1.0, BOOKS_S - (time.monotonic() - began)))

    def check_all_back(self, seconds=BACK_S):
        wait_until(lambda: ready_workers(self.c) == self.everybody, lambda: f"everybody back in work: {self.c.workers()}", seconds)


class Timed(Stream):
    """A stream that knows when each event came."""

    def __init__(self, cluster, request):
        self.times = [time.monotonic()]
        super().__init__(cluster, request)

    def run(self):
        try:
            for e in self.events:
                self.seen.append(e)
                self.times.append(time.monotonic())
        except Exception as e:  # noqa: BLE001, shown by the test
            self.failure = e

    def longest_pause(self):
        return max(b - a for a, b in zip(self.times, self.times[1:]))


@contextmanager
def scenario(pools=APART, hosts=3, load=None, make=Cluster, body=BODY, repeatable=True, **more):
    """Everything a scenario leaves behind is checked when its body ends: streams, load, books, workers."""
    workers = sum(len(p["hosts"]) * p.get("engines_per_host", 1) for p in pools)
    with make(hosts=hosts, pools=[dict(p) for p in pools], **more) as c:
        c.start()
        s = Scenario(c, workers, load, body, repeatable)
        yield s
        s.pauses = s.check_streams()
        s.report = s.check_load(s.failures_max)
        s.check_books()
        s.check_all_back()
