# SPDX-License-Identifier: Apache-2.0
"""Other load testers beside `tandem bench-serve --closed` on one server, in turns: wrk over HTTP/1.1, h2load (nghttp2) over
HTTP/1.1 and HTTP/2. Rates of the same requests over as many connections have to agree: the median of the turns' ratios counts.
bench/compare_serve prints it.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile

from peer_common import median

AGREE = 0.1
PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client"}
WARM = 1  # whole seconds are all that h2load knows
BODY = '{"inputs":[{"name":"input_ids","datatype":"INT64","shape":[1,4],"data":[1,2,3,4]}]}'
SCRIPT = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[{body}]]
"""


def on_core(core):
    return lambda: os.sched_setaffinity(0, {core})


def output_of(command):
    p = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=on_core(1))
    if p.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(p.stdout + p.stderr)[-300:]}")
    return p.stdout


def bench_rate(a, url, path, connections, seconds, http2, body):
    more = (["--http2"] if http2 else []) + (["--body", body] if body else [])
    out = output_of([a.tandem, "bench-serve", url, "--path", path, "--closed", str(connections), "--seconds", str(seconds), "--json",
                     *more])
    return json.loads(out)["requests_per_second"]


def wrk_rate(url, path, connections, seconds, body):
    more = ["-s", body + ".lua"] if body else []
    out = output_of(["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", *more, url + path])
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError("wrk: " + out[-300:])
    return float(re.search(r"Requests/sec: *([0-9.]+)", out).group(1))


def h2load_rate(url, path, connections, seconds, http2, body):
    more = ([] if http2 else ["--h1"]) + (["-d", body, "-H", "content-type: application/json"] if body else [])
    out = output_of(["h2load", "-t", "1", "-c", str(connections), "-m", "1", "-D", str(seconds), "--warm-up-time", str(WARM), *more,
                     url + path])
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", out)
    if not counts or counts.group(2, 3) != ("0", "0"):
        raise RuntimeError("h2load: " + out[-500:])
    return int(counts.group(1)) / seconds


def cases(has_http2):
    """Client, HTTP/2 or not, connections, path, posted or not."""
    infer, live = "/v2/models/gpt2/infer", "/v2/health/live"
    for connections in (1, 16):
        yield "wrk", False, connections, live, False
        yield "wrk", False, connections, infer, True
        if connections > 1:
            yield "h2load", False, connections, live, False
        if has_http2:
            yield "h2load", True, connections, live, False
            yield "h2load", True, connections, infer, True


def compare_clients(a, server, note, has_http2):
    """Rows of the cases whose client is installed. `server`: one that answers for tests/golden/hf/gpt2."""
    rows = []
    for name, package in PACKAGES.items():
        if not shutil.which(name):
            note(f"{name} is not installed and left out (Debian's package {package})")
    if not has_http2:
        note("this build has no HTTP/2, which h2load is compared with")
    seconds = max(1, round(a.seconds))
    with tempfile.TemporaryDirectory() as folder:
        body = os.path.join(folder, "body")
        with open(body, "w", encoding="utf-8") as f:
            f.write(BODY)
        with open(body + ".lua", "w", encoding="utf-8") as f:
            f.write(SCRIPT.format(body=BODY))
        for name, http2, connections, path, posted in cases(has_http2):
            if not shutil.which(name):
                continue
            own, theirs = [], []
            for _ in range(a.rounds):
                own.append(bench_rate(a, server.url, path, connections, seconds, http2, body if posted else None))
                if name == "wrk":
                    theirs.append(wrk_rate(server.url, path, connections, seconds, body if posted else None))
                else:
                    theirs.append(h2load_rate(server.url, path, connections, seconds, http2, body if posted else None))
            ratio = median([x / y for x, y in zip(own, theirs)])
            print(f"bench-serve / {name}, HTTP/{2 if http2 else 1}, {'POST' if posted else 'GET'} {path}, {connections} connections: "
                  f"{median(own):.0f} / {median(theirs):.0f}, in turns {ratio:.2f} (bar: within {AGREE:.0%})", flush=True)
            rows.append({"client": name, "http2": http2, "connections": connections, "path": path, "rate": median(own),
                         "client_rate": median(theirs), "ratio": ratio, "met": abs(ratio - 1) <= AGREE})
    return rows
