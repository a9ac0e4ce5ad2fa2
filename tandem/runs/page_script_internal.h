// SPDX-License-Identifier: Apache-2.0
// Style and script of Page, as they stand in every file it makes.
#pragma once

namespace tandem::runs {

inline constexpr const char* kPageStyle = R"CSS(
:root{--ink:#1d2430;--soft:#667085;--line:#e3e6ea;--back:#fff;--panel:#f7f8fa;--accent:#4e79a7}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#98a2b3;--line:#333a45;--back:#15181d;--panel:#1d2127;--accent:#7fb0e0}}
*{box-sizing:border-box}
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1180px;padding:0 1.2em;color:var(--ink);background:var(--back)}
h1{font-size:1.45em;margin:0 0 .6em}h2{font-size:1.05em;margin:2em 0 .6em}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(185px,1fr));gap:8px}
.facts div{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 10px}
.facts span{display:block;color:var(--soft);font-size:12px}.facts b{font-variant-numeric:tabular-nums;font-weight:600;overflow-wrap:anywhere}
.charts{margin-top:18px;display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,540px),1fr));gap:18px}
.chart{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px 12px;position:relative}
.chart h3,.box h3{font-size:13px;margin:0 0 4px;font-weight:600}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:11px}
.grid{stroke:var(--line)}.key{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:12px;color:var(--soft);margin-top:4px}
.key i{display:inline-block;width:14px;height:3px;margin-right:5px;vertical-align:middle;border-radius:2px}
.tip{position:absolute;pointer-events:none;background:var(--back);border:1px solid var(--line);border-radius:4px;padding:3px 7px;font-size:12px;display:none;white-space:nowrap;z-index:2}
.tools+.charts{margin-top:0}.tools{display:flex;gap:18px;align-items:center;color:var(--soft);font-size:12px;margin:0 0 10px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:4px 9px;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:500;position:sticky;top:0;background:var(--back)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
table.m{width:auto}table.m td,table.m th{text-align:center;vertical-align:middle;padding:0 6px;border:1px solid var(--back);min-width:30px;height:28px;font-size:12px;font-variant-numeric:tabular-nums}
table.m th{position:static;color:var(--soft);padding:0 6px}
.pics{display:grid;grid-template-columns:repeat(auto-fill,minmax(118px,1fr));gap:12px}
.pics figure{margin:0;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px;text-align:center}
.pics img{width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;background:#0001}
.pics pre{font-size:11px;text-align:left;white-space:pre-wrap;margin:0 0 6px;max-height:110px;overflow:hidden}
.pics figcaption{font-size:12px;color:var(--soft);line-height:1.35;white-space:pre-line}
pre.file{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px 12px;font-size:12px;overflow-x:auto;max-height:420px}
p.note{color:var(--soft);margin:.6em 0}
)CSS";

inline constexpr const char* kPageScript = R"JS(
const page = JSON.parse(document.getElementById("data").textContent);
const colours = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#9c755f", "#86a8c9", "#8cd17d"];
const NS = "http://www.w3.org/2000/svg";
function make(tag, attributes, parent, text) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect"].includes(tag);
  const e = svg ? document.createElementNS(NS, tag) : document.createElement(tag);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.appendChild(e);
  return e;
}
function short(v) {
  if (v === null || !isFinite(v)) return "-";
  if (v === 0) return "0";
  const a = Math.abs(v);
  if (a >= 1e6 || a < 1e-3) return v.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(+v.toPrecision(4));
}
function ticks(low, high, log, wanted) {
  const out = [];
  if (log) {
    const a = Math.floor(Math.log10(low)), b = Math.ceil(Math.log10(high));
    const steps = b - a <= 2 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((b - a) / wanted));
    for (let k = a; k <= b; k += every) for (const m of steps) {
      const v = m * 10 ** k;
      if (v >= low * 0.999 && v <= high * 1.001) out.push(v);
    }
    if (out.length > 1) return out;
    out.length = 0;
  }
  const raw = (high - low) / wanted || 1, base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * base).find(s => s >= raw);
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
function smoothed(y, weight) {
  if (!weight) return y;
  let mean = 0, n = 0;
  return y.map(v => {
    if (v === null) return null;
    mean = weight * mean + (1 - weight) * v;
    n += 1;
    return mean / (1 - weight ** n);
  });
}
const state = { log: false, smooth: 0 };
const charts = [];
function chart(part, into) {
  const box = make("div", { class: "chart" }, into);
  make("h3", {}, box, part.title);
  const W = 540, H = 240, L = 52, R = 12, T = 8, B = 38;
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": part.title }, box);
  const tip = make("div", { class: "tip" }, box);
  if (part.series.length > 1 || part.series[0].name !== part.title) {
    const key = make("div", { class: "key" }, box);
    part.series.forEach((s, i) => {
      const k = make("span", {}, key);
      make("i", { style: `background:${colours[i % colours.length]}` }, k);
      k.appendChild(document.createTextNode(s.name));
    });
  }
  function draw() {
    svg.textContent = "";
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity, positive = true;
    const lines = part.series.map(s => ({ x: s.x, y: s.y.length > 8 ? smoothed(s.y, state.smooth) : s.y }));
    for (const s of lines) s.y.forEach((v, i) => {
      if (v === null) return;
      x0 = Math.min(x0, s.x[i]); x1 = Math.max(x1, s.x[i]);
      y0 = Math.min(y0, v); y1 = Math.max(y1, v);
      if (v <= 0) positive = false;
    });
    const log = state.log && positive;
    if (y0 === y1) { const d = Math.abs(y0) * 0.1 || 1; y0 -= log ? y0 / 2 : d; y1 += d; }
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    if (!log) { const d = (y1 - y0) * 0.05; const zero = y0 >= 0; y0 -= d; y1 += d; if (zero && y0 < 0) y0 = 0; }
    const px = v => L + (v - x0) / (x1 - x0) * (W - L - R);
    const f = log ? Math.log : v => v;
    const py = v => T + (1 - (f(v) - f(y0)) / (f(y1) - f(y0))) * (H - T - B);
    for (const v of ticks(y0, y1, log, 5)) {
      make("line", { x1: L, x2: W - R, y1: py(v), y2: py(v), class: "grid" }, svg);
      make("text", { x: L - 6, y: py(v) + 4, "text-anchor": "end" }, svg, short(v));
    }
    make("line", { x1: L, x2: W - R, y1: H - B, y2: H - B, stroke: "currentColor", "stroke-opacity": 0.35 }, svg);
    for (const v of ticks(x0, x1, false, 6)) {
      make("line", { x1: px(v), x2: px(v), y1: H - B, y2: H - B + 4, stroke: "currentColor", "stroke-opacity": 0.35 }, svg);
      make("text", { x: px(v), y: H - B + 16, "text-anchor": "middle" }, svg, short(v));
    }
    make("text", { x: W - R, y: H - 6, "text-anchor": "end" }, svg, part.x);
    lines.forEach((s, i) => {
      let d = "", pen = false, count = 0, at = -1;
      s.y.forEach((v, k) => {
        if (v === null) { pen = false; return; }
        d += `${pen ? "L" : "M"}${px(s.x[k]).toFixed(1)} ${py(v).toFixed(1)}`;
        pen = true; count++; at = k;
      });
      const colour = colours[i % colours.length];
      if (count === 1) make("circle", { cx: px(s.x[at]), cy: py(s.y[at]), r: 3, fill: colour }, svg);
      else if (d) make("path", { d, fill: "none", stroke: colour, "stroke-width": 1.6, "stroke-linejoin": "round" }, svg);
    });
    const cross = make("line", { y1: T, y2: H - B, stroke: "currentColor", "stroke-opacity": 0.35, visibility: "hidden" }, svg);
    svg.onmousemove = e => {
      const at = svg.getBoundingClientRect();
      const v = x0 + ((e.clientX - at.left) / at.width * W - L) / (W - L - R) * (x1 - x0);
      let text = "", shown = null;
      lines.forEach((s, i) => {
        let best = -1;
        s.x.forEach((u, k) => { if (s.y[k] !== null && (best < 0 || Math.abs(u - v) < Math.abs(s.x[best] - v))) best = k; });
        if (best < 0) return;
        if (shown === null) shown = s.x[best];
        text += `${text ? " · " : ""}${part.series[i].name} ${short(s.y[best])}`;
      });
      if (shown === null) return;
      cross.setAttribute("x1", px(shown)); cross.setAttribute("x2", px(shown)); cross.setAttribute("visibility", "visible");
      tip.textContent = `${part.x} ${short(shown)}: ${text}`;
      tip.style.display = "block"; tip.style.left = "60px"; tip.style.top = "30px";
    };
    svg.onmouseleave = () => { cross.setAttribute("visibility", "hidden"); tip.style.display = "none"; };
  }
  charts.push(draw);
  draw();
}
function mix(t) {
  t = Math.max(0, Math.min(1, t));
  return `rgba(78,121,167,${(0.06 + 0.94 * t).toFixed(3)})`;
}
const draw = {
  facts(part, into) {
    const grid = make("div", { class: "facts" }, into);
    for (const [label, value] of part.facts) {
      const d = make("div", {}, grid);
      make("span", {}, d, label);
      make("b", {}, d, value);
    }
  },
  note(part, into) { make("p", { class: "note" }, into, part.text); },
  table(part, into) {
    make("h2", {}, into, part.title);
    const t = make("table", {}, make("div", { class: "scroll" }, into));
    const number = part.head.map((h, c) => part.rows.length > 0 && part.rows.every(r => r[c] === "" || /^[-+]?[\d.]+(e[-+]?\d+)?( ?[%a-zA-Z/]{1,4})?$/.test(r[c])));
    const head = make("tr", {}, t);
    part.head.forEach((h, c) => make("th", number[c] ? { class: "n" } : {}, head, h));
    for (const row of part.rows) {
      const tr = make("tr", {}, t);
      row.forEach((v, c) => make("td", number[c] ? { class: "n" } : {}, tr, v));
    }
  },
  matrix(part, into) {
    make("h2", {}, into, part.title);
    make("p", { class: "note" }, into, "Rows: what was wanted. Columns: what was given. Colour: share of the row.");
    const t = make("table", { class: "m" }, make("div", { class: "scroll" }, into));
    const head = make("tr", {}, t);
    make("th", {}, head);
    part.labels.forEach(l => make("th", {}, head, l));
    part.counts.forEach((row, i) => {
      const tr = make("tr", {}, t), sum = row.reduce((a, b) => a + b, 0) || 1;
      make("th", {}, tr, part.labels[i]);
      row.forEach((v, j) => {
        const share = v / sum, wrong = i !== j;
        const back = v === 0 ? "transparent" : wrong ? `rgba(225,87,89,${(0.15 + 0.85 * Math.min(1, 4 * share)).toFixed(3)})` : mix(share);
        make("td", { style: `background:${back};color:${share > 0.45 ? "#fff" : "inherit"}`, title: `wanted ${part.labels[i]}, given ${part.labels[j]}: ${v} (${(100 * share).toFixed(1)} %)` }, tr, v || "");
      });
    });
  },
  heat(part, into) {
    make("h2", {}, into, part.title);
    const t = make("table", { class: "m" }, make("div", { class: "scroll" }, into));
    const head = make("tr", {}, t);
    make("th", {}, head);
    const every = Math.ceil(part.columns.length / 20);
    part.columns.forEach((l, j) => make("th", {}, head, j % every ? "" : l));
    let low = Infinity, high = -Infinity;
    part.values.flat().forEach(v => { if (v !== null && v > 0) { low = Math.min(low, Math.log(v)); high = Math.max(high, Math.log(v)); } });
    part.values.forEach((row, i) => {
      const tr = make("tr", {}, t);
      make("th", { style: "text-align:left" }, tr, part.rows[i]);
      row.forEach((v, j) => {
        const share = v === null || v <= 0 ? -1 : high > low ? (Math.log(v) - low) / (high - low) : 0;
        const style = share < 0 ? "background:transparent" : `background:${mix(share)};color:${share > 0.55 ? "#fff" : "inherit"}`;
        const text = v === null ? "" : v === 0 ? "0" : v.toExponential(1).replace("e+", "e");
        make("td", { style, title: `${part.rows[i]}, ${part.columns[j]}: ${short(v)}` }, tr, part.columns.length <= 12 ? text : "");
      });
    });
  },
  images(part, into) {
    make("h2", {}, into, part.title);
    const grid = make("div", { class: "pics" }, into);
    for (const p of part.images) {
      const f = make("figure", {}, grid);
      if (p.src) make("img", { src: p.src, alt: p.caption }, f);
      else make("pre", {}, f, p.text);
      make("figcaption", {}, f, p.caption);
    }
  },
  listing(part, into) {
    make("h2", {}, into, part.title);
    make("pre", { class: "file" }, into, part.text);
  },
  parallel(part, into) {
    make("h2", {}, into, part.title);
    const W = 1120, H = 330, T = 34, B = 20, n = part.axes.length;
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": part.title, class: "parallel" }, into);
    const px = i => n > 1 ? 70 + i * (W - 150) / (n - 1) : W / 2;
    const scales = part.axes.map((a, i) => {
      const v = part.lines.map(l => l[i]).filter(u => u !== null);
      let low = a.words.length ? 0 : Math.min(...v), high = a.words.length ? a.words.length - 1 : Math.max(...v);
      if (!(high > low)) { low = (low || 0) - 0.5; high = low + 1; }
      const log = a.log && low > 0, f = log ? Math.log : u => u;
      return { low, high, log, y: u => T + (1 - (f(u) - f(low)) / (f(high) - f(low))) * (H - T - B) };
    });
    const last = scales[n - 1];
    const order = part.lines.slice().sort((a, b) => (a[n - 1] ?? -Infinity) - (b[n - 1] ?? -Infinity));
    for (const l of order) {
      const good = l[n - 1] === null ? 0 : (l[n - 1] - last.low) / (last.high - last.low);
      let d = "", pen = false;
      l.forEach((v, i) => {
        if (v === null) { pen = false; return; }
        d += `${pen ? "L" : "M"}${px(i).toFixed(1)} ${scales[i].y(v).toFixed(1)}`;
        pen = true;
      });
      const hue = 220 - 200 * good;
      const p = make("path", { d, fill: "none", stroke: `hsl(${hue},65%,52%)`, "stroke-width": 1.5, "stroke-opacity": 0.65 }, svg);
      make("title", {}, p, part.axes.map((a, i) => `${a.name}: ${a.words.length ? a.words[l[i]] : short(l[i])}`).join("\n"));
    }
    part.axes.forEach((a, i) => {
      const s = scales[i];
      make("line", { x1: px(i), x2: px(i), y1: T, y2: H - B, stroke: "currentColor", "stroke-opacity": 0.5 }, svg);
      make("text", { x: px(i), y: 16, "text-anchor": "middle", style: "font-weight:600;fill:currentColor" }, svg, a.name);
      if (a.words.length) a.words.forEach((w, k) => make("text", { x: px(i) + 6, y: s.y(k) + 4 }, svg, w));
      else for (const v of ticks(s.low, s.high, s.log, 5)) make("text", { x: px(i) + 6, y: s.y(v) + 4 }, svg, short(v));
    });
  },
};
const body = document.getElementById("page");
let row = null;
for (const part of page.parts) {
  if (part.kind === "chart") {
    if (!row) {
      if (!charts.length) {
        make("h2", {}, body, "Curves");
        const tools = make("div", { class: "tools" }, body);
        const a = make("label", {}, tools, "smoothing ");
        const slide = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 }, a);
        const b = make("label", {}, tools);
        const box = make("input", { type: "checkbox" }, b);
        b.appendChild(document.createTextNode(" logarithmic"));
        slide.oninput = () => { state.smooth = +slide.value; charts.forEach(f => f()); };
        box.onchange = () => { state.log = box.checked; charts.forEach(f => f()); };
      }
      row = make("div", { class: "charts" }, body);
    }
    chart(part, row);
  } else {
    row = null;
    draw[part.kind](part, body);
  }
}
)JS";

}  // namespace tandem::runs
