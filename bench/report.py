#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/compare makes of its rounds: ratios with their intervals, the bars, the tables, the
page in Markdown and in HTML, and the README's table.

usage: bench/report.py            writes docs/benchmarks.md and the README's table from docs/benchmarks.json
       bench/report.py --check    exit code 1 when either differs from what the JSON file gives
"""
import html
import json
import os
import random
import sys


def median(v):
    v, n = sorted(v), len(v)
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def stats(v):
    return {"median": round(median(v), 5), "min": round(min(v), 5), "max": round(max(v), 5),
            "rounds": [round(x, 5) for x in v]}


def span(s, digits=3):
    return f"{s['median']:.{digits}g} ({s['min']:.{digits}g} - {s['max']:.{digits}g})"


def ratio_text(row, name):
    entry = row["peers"].get(name)
    if entry is None:
        return "-"
    if "ratio" not in entry:
        return f"losses differ by {entry['loss_gap']:.2g}"
    return span(entry["ratio"]) + (" (losses not compared)" if entry["loss_gap"] is None else "")


def table(rows):
    lines = ["| work | Tandem | PyTorch, default | ratio | fastest peer | ratio |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        name = row["what"] + ("" if row["variant"] in ("default", "eager") else
                              f" ({row['variant']})")
        default, best = row["peers"].get("torch default"), row["best_peer"]
        cells = [name, f"{span(row['tandem'])} {row['unit']}"]
        cells += [f"{span(default)} {row['unit']}" if default else "-", ratio_text(row, "torch default")]
        cells += [f"{span(row['peers'][best])} {row['unit']}, {best}" if best else "-",
                  ratio_text(row, best) if best else "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def above_idle(entry):
    """Peak memory of a process over what it held before the model was made, in MB."""
    if entry.get("rss_mb") is None or entry.get("idle_mb") is None:
        return None
    return max(entry["rss_mb"] - entry["idle_mb"], 1)


def memory_text(row, entry):
    """Megabytes above idle, and for Tandem the share of PyTorch's."""
    own = above_idle(entry)
    if own is None:
        return "-"
    theirs = above_idle(row["peers"].get("torch default", {}))
    return f"{own} ({own / theirs:.2f} of PyTorch)" if entry is row and theirs else str(own)


def memory_table(rows):
    """What compile() predicted a call would need, and what the allocator then handed out."""
    rows = [r for r in rows if r.get("peak_bytes") and r.get("measured_bytes")]
    if not rows:
        return []
    lines = ["", "Memory of one compiled call, not counting cells and arguments:", "",
             "| work | predicted, MB | measured, MB | ratio |", "|---|---|---|---|"]
    return lines + [f"| {r['case']} | {r['peak_bytes'] / 1e6:.2f} | {r['measured_bytes'] / 1e6:.2f} "
                    f"| {r['peak_bytes'] / r['measured_bytes']:.3f} |" for r in rows]


def peer_table(rows):
    """Every peer's median, beside time to the first step and memory above the idle process."""
    lines = ["| work | program | ms | to the first step, s | memory above idle, MB | page faults per step |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        if row["unit"] != "ms":
            continue
        def line(program, s, entry, what=row["case"]):
            first = entry.get("first_s")
            lines.append(f"| {what} | {program} | {span(s)} | "
                         f"{'-' if first is None else f'{first:.3g}'} | "
                         f"{memory_text(row, entry)} | "
                         f"{'-' if entry.get('faults') is None else entry['faults']} |")
        line(f"Tandem {row['variant']}", row["tandem"], row)
        if row["variant"] == "eager":
            for name, entry in row["peers"].items():
                line(name, entry, entry)
    return lines


def against(group, vendor):
    """Which peers a bar is about. On Intel's processors MKL needs no unlocking."""
    free = "+mkl_unlocked"
    return {"any": lambda n: True,
            "plain": lambda n: not n.endswith(free),
            "torch": lambda n: n.startswith("torch") and not n.endswith(free),
            "tf": lambda n: n in ("tf", "tf_xla"),
            "unlocked": lambda n: n.startswith("torch") and
            (n.endswith(free) or vendor == "GenuineIntel")}[group]


def interval(ours, theirs, draws=2000):
    """95 % bootstrap interval of the ratio of medians (the same draws in every run)."""
    rng, n, got = random.Random(0), len(ours), []
    for _ in range(draws):
        pick = [rng.randrange(n) for _ in range(n)]
        got.append(median([theirs[i] for i in pick]) / median([ours[i] for i in pick]))
    got.sort()
    return got[draws // 40], got[-1 - draws // 40]


def evaluate(rows, wanted, vendor):
    """A line for each bar: the fastest round of the fastest peer of its group over Tandem's median."""
    out = []
    for row in rows:
        for group, bar in wanted.get(row["variant"], {}).get(row["case"], []):
            if group == "own f32":
                plain = row["case"].replace("_bf16", "")
                peers = {"Tandem " + r["variant"] + " f32": r["tandem"] for r in rows
                         if r["case"] == plain and r["variant"] == row["variant"]}
            else:
                fits = against(group, vendor)
                peers = {n: e for n, e in row["peers"].items() if fits(n) and "ratio" in e}
            if not peers:
                continue
            best = min(peers, key=lambda n: peers[n]["min"])
            low, high = interval(row["tandem"]["rounds"], peers[best]["rounds"])
            ratio = peers[best]["min"] / row["tandem"]["median"]
            out.append({"case": row["case"], "variant": row["variant"], "against": group,
                        "peer": best, "peer_min": peers[best]["min"],
                        "tandem_median": row["tandem"]["median"], "ratio": round(ratio, 3),
                        "interval": [round(low, 3), round(high, 3)], "bar": bar,
                        "met": ratio >= bar})
    return out


def bar_table(data):
    if not data.get("bars"):
        return []
    lines = ["", "Bars: the fastest round of the fastest peer over Tandem's median. The interval is "
             "the 95 % bootstrap interval of the ratio of medians.", "",
             "| work | against | fastest | its ms | Tandem ms | ratio | interval | bar | |",
             "|---|---|---|---|---|---|---|---|---|"]
    return lines + [f"| {b['case']} {b['variant']} | {b['against']} | {b['peer']} "
                    f"| {b['peer_min']:.3g} | {b['tandem_median']:.3g} | {b['ratio']:.2f} "
                    f"| {b['interval'][0]:.2f} - {b['interval'][1]:.2f} | {b['bar']} "
                    f"| {'met' if b['met'] else 'not met'} |" for b in data["bars"]]


def tables(data):
    rows = data["rows"]
    return [*table(rows), *bar_table(data), "", *peer_table(rows), *memory_table(rows)]


def page(data):
    c = data["cpu"]
    peers = ", ".join(data["versions"].values()) or "no peer was measured"
    lines = ["# Benchmarks", "", "Written by `bench/compare`; do not edit.", "",
             f"CPU: {c['model']} (family/model {c['family']}, {c['simd']}), {c['count']} logical "
             f"CPUs; {data['threads']} threads; f32; {data['date']}; {peers}; load before the run "
             f"{data['load_before']}.", "",
             "The programs take turns, each in its own process, for "
             f"{data['rounds']} rounds; a cell is the median round (smallest - largest). All "
             "start from the same weights and data, and their first losses are compared. A ratio "
             "above 1 means that Tandem is faster. Rows marked \"compiled\" run Tandem's step as one "
             "graph, the others run it op by op (eager). The fastest peer is the fastest of all those in "
             "the third table"
             + ("." if c["vendor"] == "GenuineIntel" else ", where every PyTorch setting also appears with "
                "MKL's Intel code paths unlocked."), "", *tables(data)]
    bars = [f"- {r['case']}: {r['tandem']['median']:.3g} us, bar {r['bar']} us: "
            f"{'met' if r['bar_met'] else 'not met'}" for r in data["rows"] if "bar" in r]
    if bars:
        lines += ["", "Bars for single eager ops:", "", *bars]
    if data["missing"]:
        lines += ["", "Not measured in this run: " + ", ".join(data["missing"]) + "."]
    return "\n".join(lines) + "\n"


PROGRAMS = {"torch": "PyTorch", "jax": "JAX", "tf": "TensorFlow"}


def readme_block(data):
    """The README's table: compiled training steps beside PyTorch and beside the fastest program."""
    c = data["cpu"]
    lines = ["<!-- speed: written by bench/report.py -->",
             "| one training step | Tandem | PyTorch | | fastest of all others | | memory, of PyTorch's |",
             "|---|---|---|---|---|---|---|"]
    for row in data["rows"]:
        default, best = row["peers"].get("torch default"), row["best_peer"]
        if row["variant"] != "compiled" or not default or "ratio" not in default or not best:
            continue
        fastest, own, theirs = row["peers"][best], above_idle(row), above_idle(default)
        what = row["what"].replace(", training step", "").replace(" of the README", "")
        lines.append(
            f"| {what} | {row['tandem']['median']:.3g} ms | {default['median']:.3g} ms "
            f"| **{default['ratio']['median']:.2f}x** | {fastest['median']:.3g} ms, "
            f"{PROGRAMS[best.split()[0].split('_')[0]]} | **{fastest['ratio']['median']:.2f}x** "
            f"| {f'{100 * own / theirs:.0f} %' if own and theirs else '-'} |")
    versions = ", ".join(data["versions"].values())
    return "\n".join([
        *lines, "", f"{c['model']}, {data['threads']} threads, f32 unless bfloat16 is named, {data['date']}; {versions}. PyTorch "
        "with its default settings; the fastest of all others includes PyTorch's fused optimizers, channels-last, "
        "`torch.compile` and unlocked MKL, JAX and TensorFlow. Memory is what a run adds to the idle process.",
        "<!-- speed: end -->"]) + "\n"


def with_block(readme, data):
    """The text of the README with its table remade."""
    head, rest = readme.split("<!-- speed: written", 1)
    return head + readme_block(data) + rest.split("<!-- speed: end -->\n", 1)[1]




STYLE = """
:root { --fg: #1b1f24; --dim: #667; --line: #d8dde3; --bg: #fff; --own: #1f6feb; --peer: #9aa7b5; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e6edf3; --dim: #9aa7b5; --line: #30363d; --bg: #0d1117; --own: #58a6ff; --peer: #57606a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem }
.note, .unit { color: var(--dim) }
svg { width: 100%; height: auto; display: block } svg text { font: 12px system-ui, sans-serif; fill: var(--fg) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line) }
td.n { text-align: right } .met { color: #2da44e } .missed { color: #cf222e }
"""


def chart(title, unit, bars):
    """Horizontal bars of (name, stats, own): median, with a line from the smallest to the largest
    round."""
    most = max(s["max"] for _, s, _ in bars)
    left, right, row = 230, 110, 22
    width, height = 860, row * len(bars) + 6
    def x(v):
        return left + (width - left - right) * v / most
    out = [f"<h2>{html.escape(title)} <span class=unit>{unit}, less is better</span></h2>",
           f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">']
    for i, (name, s, own) in enumerate(bars):
        y = i * row + 4
        out.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="{left}" y="{y}" width="{max(x(s["median"]) - left, 1):.1f}" height="16" rx="2" '
            f'fill="var(--{"own" if own else "peer"})"/>'
            f'<line x1="{x(s["min"]):.1f}" x2="{x(s["max"]):.1f}" y1="{y + 8}" y2="{y + 8}" '
            f'stroke="var(--fg)" stroke-width="1.5"/>'
            f'<text x="{x(s["max"]) + 6:.1f}" y="{y + 13}">{s["median"]:.3g}</text>')
    return out + ["</svg>"]


def html_page(data):
    c = data["cpu"]
    peers = ", ".join(data["versions"].values()) or "no peer was measured"
    out = ["<!doctype html><html lang=en><meta charset=utf-8>",
           '<meta name=viewport content="width=device-width">',
           f"<title>Tandem: benchmarks</title><style>{STYLE}</style>", "<h1>Benchmarks</h1>",
           f"<p class=note>{html.escape(c['model'])} ({c['simd']}), {c['count']} logical CPUs, "
           f"{data['threads']} threads, {data['date']}; {html.escape(peers)}; {data['rounds']} "
           "rounds, each program in its own process, taking turns. Bars are medians; the lines span "
           "the fastest to the slowest round.</p>"]
    if data.get("bars"):
        out += ["<h2>Bars</h2><table><tr><th>work<th>against<th>fastest<th>ratio<th>interval<th>bar<th>"]
        out += [f"<tr><td>{b['case']} {b['variant']}<td>{b['against']}<td>{html.escape(b['peer'])}"
                f"<td class=n>{b['ratio']:.2f}<td class=n>{b['interval'][0]:.2f} - "
                f"{b['interval'][1]:.2f}<td class=n>{b['bar']}<td class="
                + ("met>met" if b["met"] else "missed>not met") for b in data["bars"]]
        out += ["</table>"]
    titles = {}
    for row in data["rows"]:
        titles.setdefault(row["case"], []).append(row)
    for rows in titles.values():
        bars = [("Tandem" + ("" if r["variant"] == "default" else " " + r["variant"]), r["tandem"],
                 True) for r in rows]
        bars += [(n, e, False) for n, e in rows[0]["peers"].items()]
        out += chart(rows[0]["what"], rows[0]["unit"], sorted(bars, key=lambda b: b[1]["median"]))
    return "\n".join(out) + "\n</html>\n"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    read = lambda name: open(os.path.join(root, name), encoding="utf-8").read()  # noqa: E731
    data = json.loads(read("docs/benchmarks.json"))
    stale = False
    for name, text in (("docs/benchmarks.md", page(data)),
                       ("README.md", with_block(read("README.md"), data))):
        if text == read(name):
            continue
        stale = True
        if sys.argv[1:] == ["--check"]:
            print(f"{name} does not show docs/benchmarks.json: bench/report.py")
        else:
            with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                f.write(text)
    sys.exit(stale and sys.argv[1:] == ["--check"])


if __name__ == "__main__":
    main()
