"""Hosts as network namespaces of one machine, joined by a switch (a bridge in a namespace of its own), so that a wire can be measured and cut. Needs root; `why_not()` says
what is missing elsewhere."""

import ctypes
import json
import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

from cluster import Cluster

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:99"  # a link address that no host has
libc = ctypes.CDLL(None, use_errno=True)


def ip(*arguments, check=True):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """Why this machine cannot make such a network; empty if it can."""
    try:
        with Network(["a"]):
            return ""
    except (RuntimeError, OSError) as e:
        return str(e)


@contextmanager
def inside(namespace):
    """What this thread opens meanwhile belongs to the namespace."""
    with open(f"/proc/self/task/{threading.get_native_id()}/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            if libc.setns(home.fileno(), CLONE_NEWNET) != 0:
                os._exit(70)  # nothing after this could be trusted


class Network:
    """One namespace for each host, with its wire as `eth0`."""

    def __init__(self, hosts):
        self.prefix = f"troupe-test-{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.namespaces = {h: f"{self.prefix}-{h}" for h in hosts}
        self.addresses = {h: f"10.123.0.{i + 1}" for i, h in enumerate(hosts)}

    def __enter__(self):
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "name", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for host, name in self.namespaces.items():
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", self.switch, "link", "add", "name", host, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("-n", self.switch, "link", "set", "dev", host, "master", "bridge", "up")
                ip("-n", name, "address", "add", f"{self.addresses[host]}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [self.switch, *self.namespaces.values()]:
            if Path(f"/run/netns/{name}").exists():
                ip("netns", "del", name, check=False)

    def bytes_received(self, host):
        """Bytes that came in over the host's wire so far."""
        return json.loads(ip("-n", self.namespaces[host], "-s", "-j", "link", "show", "eth0"))[0]["stats64"]["rx"]["bytes"]

    def rename_device(self, host, name):
        """The host's address is on a network device of another name from now on. Its connections outlive that."""
        ip("-n", self.namespaces[host], "link", "set", "eth0", "down")
        ip("-n", self.namespaces[host], "link", "set", "eth0", "name", name)
        ip("-n", self.namespaces[host], "link", "set", name, "up")

    def cut(self, host):
        """Nothing comes, nothing goes."""
        ip("-n", self.switch, "link", "set", "dev", host, "down")

    def join(self, host):
        ip("-n", self.switch, "link", "set", "dev", host, "up")

    def mute(self, host):
        """What the host sends arrives nowhere; it still hears the others."""
        for address in self.addresses.values():
            if address != self.addresses[host]:
                ip("-n", self.namespaces[host], "neigh", "replace", address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def unmute(self, host):
        ip("-n", self.namespaces[host], "neigh", "flush", "dev", "eth0", "nud", "permanent")

    def deafen(self, host):
        """What others send to the host arrives nowhere; they still hear it."""
        for other, name in self.namespaces.items():
            if other != host:
                ip("-n", name, "neigh", "replace", self.addresses[host], "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def undeafen(self, host):
        for other, name in self.namespaces.items():
            if other != host:
                ip("-n", name, "neigh", "del", self.addresses[host], "dev", "eth0")


class WiredCluster(Cluster):
    """A cluster whose hosts are the namespaces of a `Network`. The gateway listens on the loopback device of its own."""

    def __init__(self, hosts, **more):
        names = [f"h{i}" for i in range(hosts)]
        self.network = Network(names)
        self.network.__enter__()
        try:
            extra = more.pop("extra", "")
            super().__init__(hosts=hosts, addresses=list(self.network.addresses.values()), port=7100, gateway_port=8080, extra=extra, **more)
        except BaseException:
            self.network.__exit__()
            raise

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            self.network.__exit__()

    def command_prefix(self, host):
        return ["ip", "netns", "exec", self.network.namespaces[host]]

    def connect(self, *arguments, **more):
        with inside(self.network.namespaces["h0"]):
            return socket.create_connection(*arguments, **more)
