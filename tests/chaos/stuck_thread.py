"""Stops one thread of a process while the others go on, as an endless loop or a dead device does: by ptrace, which needs to be root or the process's parent."""

import ctypes
import os
import threading
import time
from pathlib import Path

SEIZE, INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4


def threads_of(pid, name):
    """The ids of a process's threads of that name, the oldest first."""
    found = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name)
    assert found, f"process {pid} has no thread {name!r}"
    return found


def call(request, tid):
    if libc.ptrace(request, tid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x})")


def stick(pid, thread_name, all_of_them=False):
    """From now on the thread does nothing, until its process is killed. Returns when it stands. Whoever a thread starts has its name, so that it is the first of that name, or all."""
    for tid in threads_of(pid, thread_name)[: None if all_of_them else 1]:
        stick_thread(tid)


def stick_thread(tid):
    stands = threading.Event()
    failures = []

    def hold():
        # All of it in one thread, which is the tracer. It must also reap the thread, or the end of the process would never be complete.
        try:
            call(SEIZE, tid)
            call(INTERRUPT, tid)
        except OSError as e:
            failures.append(e)
            stands.set()
            return
        while True:
            try:
                _, status = os.waitpid(tid, WALL)
            except ChildProcessError:
                return
            stands.set()
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                return
            time.sleep(0.01)

    threading.Thread(target=hold, daemon=True).start()
    if not stands.wait(5):
        raise AssertionError(f"thread {tid} does not stop")
    if failures:
        raise failures[0]
