"""Real clusters for tests and measurements: writes a cluster file, starts `troupe node` processes on loopback addresses and free ports, waits for what their logs say, and leaves
nothing behind.

Only Python's standard library. The program is TROUPE_BIN, where a cluster names no other.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

TROUPE = os.environ.get("TROUPE_BIN", "troupe")
# Generous, since test machines are small and busy; nothing waits that long when all is well.
WAIT_S = 60.0


def free_port(address="127.0.0.1"):
    """One that nobody listens at now."""
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def children_of(pid):
    """Pids of all descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def engine_name(pid):
    """The name of an engine process's worker; None for another process."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return arguments[arguments.index(b"--name") + 1].decode() if b"--name" in arguments else None


def text_of(events):
    """The text of some events of a stream of /v1/completions."""
    return "".join(e["choices"][0]["text"] for e in events if isinstance(e, dict) and e.get("choices"))


def whole_text_of(events):
    """The text of a whole stream; fails on anything but an orderly end."""
    events = list(events)
    if not events or events[-1] != "[DONE]":
        raise AssertionError(f"the stream ended with {events[-1:]}")
    return text_of(events)


def wait_until(condition, what, seconds=WAIT_S, pause=0.02):
    """Waits for a true value, looking each `pause` seconds, and returns it; fails with `what` (a text, or a function that makes one)."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")
        time.sleep(pause)


class Node:
    """One `troupe node` process. `log` is all that it has printed so far, unless it prints elsewhere (`log_to`)."""

    def __init__(self, config, host, folder, env=None, arguments=(), prefix=(), program=TROUPE, log_to=None):
        self.host = host
        self.log_file = Path(folder) / f"{host}-{time.monotonic_ns()}.log"
        self.log_file.touch()
        with open(log_to or self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, str(program), "node", "--config", str(config), "--host", host, *arguments],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return self.log_file.read_text(errors="replace")

    def wait_for(self, pattern, count=1, seconds=WAIT_S):
        """Until the log has so many matches; returns the last of them."""
        def found():
            if len(matches := list(re.finditer(pattern, self.log))) >= count:
                return matches[count - 1]
            if self.process.poll() is not None and len(list(re.finditer(pattern, self.log))) < count:
                raise AssertionError(f"{self.host} ended with {self.process.returncode} before '{pattern}':\n{self.log}")
            return None
        return wait_until(found, lambda: f"'{pattern}' in the log of {self.host}:\n{self.log}", seconds)

    def engines(self):
        """Pids of the engine processes."""
        return [p for p in children_of(self.pid) if alive(p)]

    def engine(self, name):
        """The pid of the engine with this worker."""
        for pid in self.engines():
            if engine_name(pid) == name:
                return pid
        raise AssertionError(f"{self.host} has no process for {name}")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=WAIT_S):
        """The exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as e:
            raise AssertionError(f"{self.host} did not end within {seconds} s:\n{self.log}") from e

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.wait()

    def destroy(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Cluster:
    """A cluster file and its nodes; a context manager.

        with Cluster(hosts=2, pools=[dict(role="both", hosts=["h0"])]) as c:
            c.start()
            c.wait_ready()
            status, body = c.post("/v1/completions", {"model": "m", "prompt": "x"})

    Pools are simulated unless they say otherwise. `extra` is appended to the file; unless it says otherwise, nodes stop without a notice. `gateway`: a host, or several. `program`: another than TROUPE_BIN. `env`, `log_to` and `arguments`: of all nodes.
    """

    def __init__(self, hosts=2, pools=None, cluster_id="test", model_path=None, gateway="h0", extra="", addresses=None, port=None, gateway_port=None, context_tokens=8192, model_lines="", cluster_lines="", program=TROUPE, env=None, log_to=None, arguments=()):
        self.env, self.log_to, self.arguments = env, log_to, arguments
        self.folder = Path(tempfile.mkdtemp(prefix="troupe-test-"))
        self.nodes = {}
        self.everything = []
        self.program = program
        self.hosts = [f"h{i}" for i in range(hosts)]
        self.addresses = addresses or [f"127.0.0.{i + 1}" for i in range(hosts)]
        self.ports = [port or free_port(a) for a in self.addresses]
        self.gateway_port = gateway_port or free_port()
        self.admin_ports = [free_port() for _ in self.addresses]
        gateways = [gateway] if isinstance(gateway, str) else gateway
        self.gateway_ports = {h: self.gateway_port if i == 0 else free_port() for i, h in enumerate(gateways)}
        self.cluster_id = cluster_id
        self.pools = [{"name": f"p{i}", "model": "m", "engine": "simulated", **pool} for i, pool in enumerate(pools or [dict(role="both", hosts=self.hosts)])]
        self.config = self.folder / "cluster.toml"
        self.config.write_text(self._text(model_path, extra, context_tokens, model_lines, cluster_lines))
        # Hosts trust each other as everywhere: by certificates, unless the file does without.
        if hosts > 1 and "insecure_links" not in cluster_lines:
            self.cert("create")

    def _text(self, model_path, extra, context_tokens, model_lines, cluster_lines):
        out = [f'[cluster]\nid = "{self.cluster_id}"\n{cluster_lines}']
        for name, address, port, admin in zip(self.hosts, self.addresses, self.ports, self.admin_ports):
            out.append(f'[[host]]\nname = "{name}"\naddress = "{address}"\nport = {port}\nadmin_port = {admin}\n')
        path = f'path = "{model_path}"\n' if model_path else ""
        out.append(f'[[model]]\nname = "m"\n{path}{model_lines}\ncontext_tokens = {context_tokens}\n')
        for pool in map(dict, self.pools):
            simulation = pool.pop("simulation", None)
            out.append("[[pool]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in pool.items()))
            if simulation:
                out.append("[pool.simulation]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in simulation.items()))
        for host, port in self.gateway_ports.items():
            out.append(f'[[gateway]]\nhost = "{host}"\naddress = "127.0.0.1"\nport = {port}\n')
        out.append('[[router]]\nhost = "h0"\n')
        if "[limits]" not in extra:
            extra += "\n[limits]\n"
        if "drain_notice" not in extra:
            extra = extra.replace("[limits]\n", '[limits]\ndrain_notice = "0s"\n')
        return "\n".join(out) + extra

    def cert(self, command, *words, env=None):
        """`troupe cert` for this cluster's file."""
        r = subprocess.run([str(self.program), "cert", command, str(self.config), *words], capture_output=True, text=True, timeout=WAIT_S, env={**os.environ, **(env or {})})
        if r.returncode != 0:
            raise AssertionError(f"cert {command} {words}: {r.returncode}\n{r.stdout}{r.stderr}")
        return r.stdout

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for node in self.everything:
            node.destroy()
        if kind is not None and issubclass(kind, AssertionError):
            for node in self.everything:
                print(f"--- {node.host} (pid {node.pid}, exit {node.process.returncode})\n{node.log[-4000:]}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *hosts, env=None, config=None):
        for host in hosts or self.hosts:
            self.nodes[host] = Node(config or self.config, host, self.folder, {**(self.env or {}), **(env or {})}, self.arguments, prefix=self.command_prefix(host), program=self.program, log_to=self.log_to)
            self.everything.append(self.nodes[host])
        return self.nodes[(hosts or self.hosts)[-1]]

    def __getitem__(self, host):
        return self.nodes[host]

    def command_prefix(self, host):
        """What a host's node is started by."""
        return []

    # -- the admin console ----

    def console(self, *words, host="h0", check=True, seconds=WAIT_S):
        """What `troupe console` prints, decoded from JSON; with check=False, its exit code and its text instead."""
        r = subprocess.run([*self.command_prefix(host), str(self.program), "console", "--config", str(self.config), "--host", host, "--json", *words], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        if not check:
            return r.returncode, r.stdout + r.stderr
        if r.returncode != 0:
            raise AssertionError(f"console {words}: {r.returncode}\n{r.stdout}{r.stderr}")
        return json.loads(r.stdout)

    # -- HTTP ------------------------------------------------------------------

    @property
    def url(self):
        return f"http://127.0.0.1:{self.gateway_port}"

    def connect(self, *arguments, **more):
        """A socket that is connected to the gateway; as `socket.create_connection`."""
        return socket.create_connection(*arguments, **more)

    def connection(self, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway_port, timeout=timeout)
        connection._create_connection = self.connect  # where http.client lets sockets be made differently
        return connection

    def request(self, method, path, body=None, timeout=WAIT_S, headers=None):
        """Status and body; the body decoded where it is JSON."""
        connection = self.connection(timeout)
        try:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            if "json" in response.getheader("Content-Type", ""):
                text = json.loads(text)
            return response.status, text
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def stream(self, path, body, timeout=WAIT_S, headers=None):
        """Yields the `data:` values of an SSE answer, decoded where they are JSON."""
        connection = self.connection(timeout)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"{response.status}: {response.read().decode(errors='replace')}")
            for line in response:
                line = line.decode().rstrip("\r\n")
                if line.startswith("data: "):
                    value = line[6:]
                    yield value if value == "[DONE]" else json.loads(value)
        finally:
            connection.close()

    def asked(self, path):
        status, body = self.get(path, timeout=5)
        if status != 200:
            raise AssertionError(f"{path}: {status} {body}")
        return body

    def workers(self):
        """The workers' own reports, as the gateway's node has them."""
        return self.asked("/debug/workers")["workers"]

    def timeline(self, request_id):
        return self.asked(f"/debug/requests/{request_id}")

    def wait_idle(self, seconds=WAIT_S):
        """Until every worker that was not given up or stopped says that it holds nothing: no job, no KV."""
        def idle():
            return all(w["state"] in ("failed", "stopped") or w.get("idle") and w.get("running") == 0 and w.get("kv_used_tokens") == 0 for w in self.workers())
        wait_until(idle, lambda: f"idle workers: {self.workers()}", seconds)

    def ready(self):
        try:
            return self.get("/readyz", timeout=5)[0] == 200
        except OSError:
            return False

    def wait_ready(self, seconds=WAIT_S):
        """/readyz says yes, which asks for one engine of each role; and every engine of the nodes that were started serves."""
        def state():
            for node in self.nodes.values():
                if node.process.poll() is not None:
                    raise AssertionError(f"{node.host} ended with {node.process.returncode}:\n{node.log}")
            return self.ready() and not self.engines_not_ready()
        wait_until(state, lambda: f"/readyz and engines ({self.engines_not_ready()}); " + "\n".join(f"{n.host}:\n{n.log[-2000:]}" for n in self.nodes.values()), seconds)

    def engines_not_ready(self):
        code, text = self.console("directory", check=False)
        if code != 0:
            return text
        ready = {e["name"] for e in json.loads(text) if e["state"] == "ready"}
        return ", ".join(sorted(self.engine_names() - ready))

    def engine_names(self):
        return {f"{p['role']}/{p['name']}/{h}.{i}" for p in self.pools for h in p["hosts"] if h in self.nodes for i in range(p.get("engines_per_host", 1))}


class Stream(threading.Thread):
    """A stream of /v1/completions in the background, begun when this returns; `text()` waits for its end."""

    count = 0

    def __init__(self, cluster, request):
        super().__init__(daemon=True)
        Stream.count += 1
        self.id = f"stream-{Stream.count}"
        self.cluster = cluster
        self.events = cluster.stream("/v1/completions", request, headers={"X-Request-Id": self.id})
        self.seen = [next(self.events)]
        self.failure = None
        self.start()

    def run(self):
        try:
            for e in self.events:
                self.seen.append(e)
        except Exception as e:  # noqa: BLE001, shown by the test
            self.failure = e

    def text(self, seconds=WAIT_S):
        self.join(seconds)
        if self.failure or self.is_alive():
            raise AssertionError(f"the stream broke: {self.failure or 'it hangs'}")
        return whole_text_of(self.seen)

    def attempts(self):
        return self.cluster.timeline(self.id)["attempts"]
