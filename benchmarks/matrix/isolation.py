"""Each model in a process of its own, forked from one that has loaded the libraries: what crashes or hangs ends nothing else."""

import faulthandler
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any

MEMORY = 8 * 2**30


# Beside other work a process gets a part of its processor: it is ended by the clock after so many times its seconds.
PATIENCE = 10


def apart(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What the work gives, JSON and no more; or {"died": how} where its process ended, or was ended after so many seconds of work."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _work(work, writing, seconds)
    os.close(writing)
    start, text = time.perf_counter(), b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, PATIENCE * seconds - (time.perf_counter() - start)))
        if not ready:
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(reading, 1 << 16)
        if not part:
            break
        text += part
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if text and os.WIFEXITED(status):
        return json.loads(text)
    if not ready or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return {"died": f"it ran for more than {seconds:g} s"}
    ended = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
    return {"died": f"its process ended by {ended}"}


def _work(work: Callable[[], dict[str, Any]], writing: int, seconds: float) -> None:
    """In the child: no output but the result, no end but this one."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    try:
        text = json.dumps(work(), allow_nan=False).encode()
    except BaseException as error:  # the parent is to hear of everything
        text = json.dumps({"died": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}).encode()
    with os.fdopen(writing, "wb") as stream:
        stream.write(text)
    os._exit(0)
