# SPDX-License-Identifier: Apache-2.0
"""What scripts/soak and scripts/soak_reloads share: a server, and how its memory grows."""
import subprocess
import time


def start(tool, models, log, *more):
    """The process of `tandem serve`, ready, and its URL."""
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen([tool, "serve", models, "--port", "0", "--allow-load", *more], stderr=out)
    for _ in range(300):
        with open(log, encoding="utf-8") as f:
            for line in f:
                if line.startswith("ready at "):
                    return process, line.split()[2]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    with open(log, encoding="utf-8") as f:
        raise RuntimeError("the server did not start: " + f.read()[-500:])


def resident_kb(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def slope(points):
    """Of a line through (x, kB): kB for each unit of x."""
    n = len(points)
    x, y = sum(p[0] for p in points) / n, sum(p[1] for p in points) / n
    return sum((p[0] - x) * (p[1] - y) for p in points) / max(sum((p[0] - x) ** 2 for p in points), 1e-9)
