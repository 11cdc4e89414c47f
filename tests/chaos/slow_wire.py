"""A slow, lossy wire between a host's namespace and the switch: two tap devices with a forwarder between them that delays every frame and loses some. What `tc netem` does, where the kernel
has no netem."""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

from namespaces import inside, ip

TUNSETIFF = 0x400454CA
TAP_NO_PI = 0x0002 | 0x1000
FRAME_MAX = 65536


def open_tap(namespace, name):
    """The frames that the namespace sends into its new device are read from the descriptor, and the other way round."""
    with inside(namespace):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP_NO_PI))
    return fd


class SlowWire:
    """Replaces a host's wire from now on, under its name: an address that is on a device of another name is another fault. `carried` counts bytes that arrived over it, in both directions."""

    def __init__(self, network, host, delay_s, loss, seed=1):
        self.delay_s, self.loss, self.random = delay_s, loss, random.Random(seed)
        self.carried = self.lost = 0
        self.host, self.network = host, network
        namespace = network.namespaces[host]
        self.ends = (open_tap(namespace, "slow0"), open_tap(network.switch, f"slow-{host}"))
        ip("-n", namespace, "address", "flush", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "down")
        ip("-n", namespace, "link", "set", "eth0", "name", "fast0")
        ip("-n", namespace, "link", "set", "slow0", "name", "eth0")
        ip("-n", namespace, "address", "add", f"{network.addresses[host]}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", network.switch, "link", "set", "dev", f"slow-{host}", "master", "bridge", "up")
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()

    def forward(self):
        other = {self.ends[0]: self.ends[1], self.ends[1]: self.ends[0]}
        on_the_way, number = [], 0
        while not self.stopping.is_set():
            now = time.monotonic()
            while on_the_way and on_the_way[0][0] <= now:
                _, _, to, frame = heapq.heappop(on_the_way)
                try:
                    os.write(to, frame)
                    self.carried += len(frame)
                except OSError:
                    self.lost += 1  # its device is full or gone
            wait = max(0.0, on_the_way[0][0] - now) if on_the_way else 0.1
            for fd in select.select(self.ends, [], [], min(wait, 0.1))[0]:
                try:
                    frame = os.read(fd, FRAME_MAX)
                except BlockingIOError:
                    continue
                if self.random.random() < self.loss:
                    self.lost += 1
                    continue
                number += 1
                heapq.heappush(on_the_way, (time.monotonic() + self.delay_s, number, other[fd], frame))

    def close(self):
        self.stopping.set()
        self.thread.join()
        for fd in self.ends:
            os.close(fd)
