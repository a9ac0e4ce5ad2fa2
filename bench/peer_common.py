# SPDX-License-Identifier: Apache-2.0
"""What the benches beside peers share: the interpreters, the clock, the report of a case, the command line."""
import argparse
import json
import os
import resource
import sys
import time


def median(v):
    v = sorted(v)
    return v[len(v) // 2] if len(v) % 2 else (v[len(v) // 2 - 1] + v[len(v) // 2]) / 2


def find_python(given=None, short="pt", made="peers"):
    """The interpreter that is given, or the one that scripts/peers made: $PEERS/SHORT or build/deps/MADE."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    peers = os.environ.get("PEERS", "")
    tries = [given] if given else []
    tries += [os.path.join(peers, short, "bin/python")] if "/" in peers else []
    tries += [os.path.join(root, "build/deps", made, "bin/python")]
    return next((t for t in tries if os.access(t, os.X_OK)), None)


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def one_round(f, seconds):
    """Medians of clock time and of the CPU time of all threads, and page faults of a call."""
    wall, cpu, start, faults = [], [], time.perf_counter(), page_faults()
    while time.perf_counter() - start < seconds or len(wall) < 5:
        t, c = time.perf_counter(), time.process_time()
        f()
        wall.append(time.perf_counter() - t)
        cpu.append(time.process_time() - c)
    return median(wall), median(cpu), (page_faults() - faults) / len(wall)


def resident_mb(field="VmRSS:"):
    """A line of /proc/self/status in MB: resident memory now, VmHWM: at most, RssAnon: without files; None
    where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith(field):
                    return round(int(line.split()[1]) / 1024)
    except OSError:
        pass
    return None


def measure(case, variant, make, a, unit="ms"):
    """Prints a case's line. make() gives a function that does one step and returns its loss, and a
    dict with "version" and what else is to stand in the line."""
    idle = resident_mb()
    start = time.perf_counter()
    step, more = make()
    losses = [step()]
    first = time.perf_counter() - start
    losses += [step() for _ in range(a.losses - 1)]
    both = [one_round(step, a.seconds) for _ in range(a.rounds)]
    rounds = [round(w * 1e3, 5) for w, _, _ in both]
    print(json.dumps({
        "case": case, "variant": variant, unit: round(median(rounds), 5), "threads": a.threads,
        "cpu_ms": round(median([c for _, c, _ in both]) * 1e3, 5), "rounds": rounds,
        "losses": losses, "first_s": round(first, 3),
        "idle_mb": idle, "faults_a_step": round(median([n for _, _, n in both]), 1),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), **more}),
        flush=True)


def run(description, variants, run_one, prepare):
    """The command line. variants(): {case: names}; prepare(a) before the first case;
    run_one(case, variant, a) prints a line."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("case", nargs="*", help="of --list; all when none is given")
    p.add_argument("--list", action="store_true", help="print cases and their variants")
    p.add_argument("--threads", type=int, default=int(os.environ.get("TANDEM_NUM_THREADS", "2")))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=1.0, help="length of one round")
    p.add_argument("--losses", type=int, default=3, help="steps whose losses are printed")
    p.add_argument("--variant", action="append", help="default: all of the case")
    a = p.parse_args()
    have = variants()
    if a.list:
        print(json.dumps(have))
        return 0
    prepare(a)
    for case in a.case or have:
        if case not in have:
            print(f"no case is called '{case}' ({', '.join(have)})", file=sys.stderr)
            return 2
        for variant in a.variant or have[case]:
            if variant not in have[case]:
                print(f"{case} has no variant '{variant}' ({', '.join(have[case])})",
                      file=sys.stderr)
                return 2
            run_one(case, variant, a)
    return 0
