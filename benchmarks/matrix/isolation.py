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


def apart(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What the work gives, JSON and no more; or {"died": how} where its process ended, or was ended after so many seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    start, text = time.perf_counter(), b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, seconds - (time.perf_counter() - start)))
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
    if not ready:
        return {"died": f"it ran for more than {seconds:.0f} s"}
    ended = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
    return {"died": f"its process ended by {ended}"}


def _work(work: Callable[[], dict[str, Any]], writing: int) -> None:
    """In the child: no output but the result, no end but this one."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
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
