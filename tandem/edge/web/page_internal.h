// SPDX-License-Identifier: Apache-2.0
// What the pages share: their look, and how scores become bars. A page holds its net, so it opens
// from a disk, too.
#pragma once

namespace tandem::edge {

/// {title} and {heading} are replaced; what the page shows follows.
inline constexpr const char* kPageHead = R"HTML(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>
:root{--ink:#1d2430;--soft:#667085;--line:#d5d9df;--back:#fff;--accent:#4e79a7}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#98a2b3;--line:#3c4450;--back:#15181d;--accent:#7fb0e0}}
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1000px;padding:0 1em;color:var(--ink);background:var(--back)}
main{display:flex;flex-wrap:wrap;gap:28px}
canvas{border:1px solid var(--line);border-radius:8px;background:#000;max-width:100%}
#scores{flex:1;min-width:260px}
.row{display:grid;grid-template-columns:7em 1fr 4em;gap:8px;align-items:center;font-variant-numeric:tabular-nums}
.row span:first-child{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.row i{display:block;height:13px;border-radius:3px;background:var(--line)}
.row.best i{background:var(--accent)}.row.best{font-weight:600}
button,.file{font:inherit;padding:4px 14px;border:1px solid var(--line);border-radius:6px;background:none;color:inherit;cursor:pointer}
.file input{display:none}label{margin-right:1em}p{color:var(--soft)}
</style>
<h1>{heading}</h1>
)HTML";

/// Needs `labels`, and an element with the id "scores".
inline constexpr const char* kPageScores = R"JS(
const byId = (id) => document.getElementById(id);
const scores = byId('scores');
const size = (port) => port.shape.reduce((a, b) => a * b, 1);
const labelOf = (k) => labels[k] ?? String(k);

// In a worker; in the page where the browser starts none, as for pages from the disk.
const load = () => NetWorker.load(moduleBytes).catch(() => Net.load(moduleBytes));

function failed(what, error) {
  byId('say').textContent = `${what}: ${error.message}`;
}
// The stream of a camera or a microphone.
function open(wanted) {
  if (!navigator.mediaDevices) throw new Error('the browser gives it to pages of https and of this computer alone');
  return navigator.mediaDevices.getUserMedia(wanted);
}
function close(stream) {
  stream?.getTracks().forEach((track) => track.stop());
}
// The button #start: begin() and end() one after the other, never two at once.
function startButton(name, begin, end) {
  const button = byId('start');
  let runs = false, busy = false;
  const turn = async (on) => {
    if (busy || on === runs) return;
    busy = true;
    try {
      if (on) await begin();
      else await end();
      runs = on;
    } catch (error) {
      runs = false;
      await end();
      failed(`The ${name} did not start`, error);
    }
    button.textContent = `${runs ? 'Stop' : 'Start'} the ${name}`;
    busy = false;
  };
  button.onclick = () => turn(!runs);
  if (location.hash === '#start') turn(true);
  return { stop: () => turn(false) };
}
// The file that was chosen with #file: use(file); nothing where the choice was cancelled.
function fileButton(what, use) {
  byId('file').onchange = async ({ target }) => {
    const [file] = target.files;
    target.value = '';
    if (!file) return;
    try {
      await use(file);
    } catch (error) {
      failed(`The ${what} was not read`, error);
    }
  };
}

function probabilities(values) {
  const sum = values.reduce((a, b) => a + b, 0);
  if (values.every((v) => v >= 0) && Math.abs(sum - 1) < 1e-3) return values;
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity), e = values.map((v) => Math.exp(v - most));
  const total = e.reduce((a, b) => a + b, 0);
  return e.map((v) => v / total);
}
function addRow(name, share, text, best) {
  const row = document.createElement('div'), label = document.createElement('span');
  const bar = document.createElement('i'), number = document.createElement('span');
  row.className = best ? 'row best' : 'row';
  label.textContent = label.title = name;
  bar.style.width = `${100 * share}%`;
  number.textContent = text;
  row.append(label, bar, number);
  scores.append(row);
}
// All classes in their order, or of many the likeliest; gives the best.
function showClasses(values) {
  const p = probabilities([...values]);
  const order = p.map((_, k) => k).sort((a, b) => p[b] - p[a]);
  const shown = p.length > 12 ? order.slice(0, 8) : order.slice().sort((a, b) => a - b);
  scores.replaceChildren();
  for (const k of shown) addRow(labelOf(k), p[k], `${(100 * p[k]).toFixed(1)} %`, k === order[0]);
  scores.dataset.best = labelOf(order[0]);
  return { label: labelOf(order[0]), share: p[order[0]] };
}
)JS";

}  // namespace tandem::edge
