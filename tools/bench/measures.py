"""Starts a cluster for a measurement and talks to it. Standard library only; everything on loopback, every process a child of this one."""

import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY_SECONDS = 120
STOP_SECONDS = 60
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cache_dir():
    return pathlib.Path(os.environ.get("TROUPE_CACHE_DIR") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "troupe")


def gemma_path():
    return pathlib.Path(os.environ.get("TROUPE_GEMMA_GGUF") or cache_dir() / "models" / "gemma-3-270m-q4_k_m.gguf")


def program(build):
    path = ROOT / "build" / build / "bin" / "troupe"
    if not path.exists():
        raise SystemExit(f"{path} does not exist: build it with `cmake --preset {build} && cmake --build build/{build} --target troupe`")
    return path


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Cluster:
    """One or two nodes of one cluster file. `pools`: TOML text; hosts are h0 (and h1)."""

    def __init__(self, model, pools, hosts=("h0",), extra="", build="release", environment=None):
        self.directory = tempfile.TemporaryDirectory(prefix="troupe-bench-")
        self.port = free_port()
        lines = ["[cluster]", f'id = "bench-{random.randrange(1 << 32):08x}"']
        for index, host in enumerate(hosts):
            address = f"127.0.0.{index + 1}"
            lines += ["[[host]]", f'name = "{host}"', f'address = "{address}"', f"port = {free_port(address)}"]
        lines += [model, pools, "[[gateway]]", 'host = "h0"', 'address = "127.0.0.1"', f"port = {self.port}", "[[router]]", 'host = "h0"', extra]
        self.config = pathlib.Path(self.directory.name) / "cluster.toml"
        self.config.write_text("\n".join(lines) + "\n")
        self.program = program(build)
        self.hosts = hosts
        self.environment = {**os.environ, **(environment or {})}
        self.nodes = {}

    def __enter__(self):
        for host in self.hosts:
            log = open(pathlib.Path(self.directory.name) / f"{host}.log", "wb")
            self.nodes[host] = subprocess.Popen([self.program, "node", "--config", self.config, "--host", host], stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=subprocess.STDOUT, start_new_session=True, env=self.environment)
        try:
            self.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def log(self, host):
        return (pathlib.Path(self.directory.name) / f"{host}.log").read_text(errors="replace")

    def await_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        status, body = 0, ""
        while time.monotonic() < deadline:
            for host, node in self.nodes.items():
                if node.poll() is not None:
                    raise RuntimeError(f"node {host} ended with {node.returncode}:\n{self.log(host)[-3000:]}")
            try:
                status, body = self.get("/readyz")
                if status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"not ready after {READY_SECONDS} s: HTTP {status} {body}\n{self.log('h0')[-3000:]}")

    def stop(self):
        """SIGTERM to every node; returns their exit codes. One that does not end in time is killed, and its code says so."""
        for node in self.nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        codes = {}
        for host, node in self.nodes.items():
            try:
                codes[host] = node.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)
                codes[host] = node.wait()
        return codes

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connection(self, timeout_s=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def get(self, path):
        c = self.connection(5)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def engines(self):
        """{name: pid} of all engine processes below the nodes."""
        found = {}
        for host, node in self.nodes.items():
            for pid in children(node.pid):
                arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"--name" in arguments:
                    found[arguments[arguments.index(b"--name") + 1].decode()] = pid
        return found

    def workers(self):
        """The workers' own reports, as the gateway's node has them."""
        status, body = self.get("/debug/workers")
        if status != 200:
            raise RuntimeError(f"/debug/workers: HTTP {status} {body}")
        return json.loads(body)["workers"]


class Answer:
    """One streamed completion, with times in seconds since it was sent."""

    def __init__(self, cluster, body):
        connection = cluster.connection()
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
        status, body = cluster.get(f"/debug/requests/{self.id}")
        if status != 200:
            raise RuntimeError(f"/debug/requests/{self.id}: HTTP {status} {body}")
        return json.loads(body)


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pid):
    """User and system time of one process, all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS of {pid}")


def text_of(tokens, seed):
    """A prompt of about so many tokens of an English-trained model; different seeds share no prefix."""
    words = ("river mountain answer engine memory window garden planet simple number market travel winter letter music "
             "doctor forest silver island bridge kitchen teacher orange captain shadow").split()
    source = random.Random(seed)
    return " ".join(source.choice(words) for _ in range(tokens))
