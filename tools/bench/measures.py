"""What measurements share: clusters to measure, streamed answers with their times, and what processes cost. Standard library only."""

import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from cluster import Cluster, engine_name  # noqa: E402

READY_SECONDS = 120
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
ANSWER_SECONDS = 300


def cache_dir():
    return pathlib.Path(os.environ.get("TROUPE_CACHE_DIR") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "troupe")


def gemma_path():
    return pathlib.Path(os.environ.get("TROUPE_GEMMA_GGUF") or cache_dir() / "models" / "gemma-3-270m-q4_k_m.gguf")


GEMMA = dict(model_path=gemma_path(), model_lines='chat_template = "gemma"')


def program(build, name="troupe"):
    path = ROOT / "build" / build / "bin" / name
    if not path.exists():
        raise SystemExit(f"{path} does not exist: build it with `cmake --preset {build} && cmake --build build/{build} --target {name}`")
    return path


BARS = {}


def bar(name):
    """Registers a function that measures: it takes the build and yields (what, figure, wanted, whether it holds)."""
    def register(function):
        BARS[name] = function
        return function
    return register


@contextlib.contextmanager
def running(build, **more):
    """A cluster of a build, ready; `more` as for Cluster. It is stopped in order."""
    with Cluster(program=program(build), **more) as cluster:
        cluster.start()
        cluster.wait_ready(READY_SECONDS)
        yield cluster
        for node in cluster.nodes.values():
            node.stop()


def simulated(build, **simulation):
    return running(build, hosts=1, pools=[dict(name="s", role="both", hosts=["h0"], slots=64, kv_tokens=262144, simulation=simulation)])


def bench(cluster, build, *arguments):
    """`troupe bench run` against a cluster; its JSON."""
    out = cluster.config.parent / "bench.json"
    subprocess.run([program(build), "bench", "run", "--url", cluster.url, "--json", out, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


class Answer:
    """One streamed completion, with times in seconds since it was sent."""

    def __init__(self, cluster, body):
        connection = cluster.connection(ANSWER_SECONDS)
        start = time.perf_counter()
        connection.request("POST", "/v1/completions" if "prompt" in body else "/v1/chat/completions",
                           json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
        self.id = response.headers["X-Request-Id"]
        self.text, self.usage, self.finish, self.ttft, done = "", None, None, None, False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                done = True
                break
            chunk = json.loads(data)
            if "error" in chunk:
                raise RuntimeError(f"stream ended with {chunk['error']}")
            self.usage = chunk.get("usage") or self.usage
            for choice in chunk.get("choices", []):
                piece = choice.get("text") if "text" in choice else choice["delta"].get("content")
                self.finish = choice.get("finish_reason") or self.finish
                if self.ttft is None and (piece or choice.get("finish_reason")):
                    self.ttft = time.perf_counter() - start
                self.text += piece or ""
        self.total = time.perf_counter() - start
        connection.close()
        if not done or self.finish is None:
            raise RuntimeError(f"the stream broke off after {len(self.text)} characters")

    def timeline(self, cluster):
        return cluster.timeline(self.id)


def new_key(build, tenant):
    """A key for the tenant, and its hash as a cluster file wants it."""
    made = subprocess.run([program(build), "key", "create", tenant], check=True, capture_output=True, text=True).stdout
    return re.search(r"tr-[\w-]+", made).group(), re.search(r'keys = \["(\w+)"\]', made).group(1)


def settle(cluster, limit_s=10.0):
    """Waits until every worker says that it is idle; returns how long that took, in seconds. Looks more often than tests do, since it is what is measured."""
    start = time.perf_counter()
    while not all(w["idle"] for w in cluster.workers()):
        if time.perf_counter() - start > limit_s:
            raise RuntimeError(f"workers not idle after {limit_s} s: {cluster.workers()}")
        time.sleep(0.005)
    return time.perf_counter() - start


def cpu_seconds(pid):
    """User and system time of one process, all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS of {pid}")


def words_of(tokens, seed):
    """A prompt of about so many tokens of an English-trained model; different seeds share no prefix."""
    words = ("river mountain answer engine memory window garden planet simple number market travel winter letter music "
             "doctor forest silver island bridge kitchen teacher orange captain shadow").split()
    source = random.Random(seed)
    return " ".join(source.choice(words) for _ in range(tokens))
