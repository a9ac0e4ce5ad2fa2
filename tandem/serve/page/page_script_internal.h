// SPDX-License-Identifier: Apache-2.0
// The script of the page at "/". It asks /page/state once a second, draws what changed, and sends
// what a person tries by the same routes as any client. Texts are set as text, never as HTML.
#pragma once

namespace tandem::serve {

inline constexpr const char* kPageScript = R"JS(
'use strict';
const $ = (id) => document.getElementById(id);
function make(tag, attributes = {}, ...inside) {
  const svg = ['svg', 'path', 'line', 'text'].includes(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attributes))
    k.startsWith('on') ? (e[k] = v) : k in e && !svg ? (e[k] = v) : e.setAttribute(k, v);
  e.append(...inside);
  return e;
}
const short = (v) => Number.isInteger(v) && v < 1e4 ? String(v) : v >= 1e6 ? (v / 1e6).toFixed(1) + 'M' : v >= 1e4 ? (v / 1e3).toFixed(1) + 'k'
  : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v > 0 ? v.toPrecision(2) : '0';
const milli = (s) => s >= 1 ? s.toFixed(2) + ' s' : s >= 1e-3 ? (s * 1e3).toPrecision(3) + ' ms' : (s * 1e6).toFixed(0) + ' µs';

// ---- the server
let key = sessionStorage.getItem('tandem-key') ?? '';
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = 'Bearer ' + key;
  const r = await fetch(path, { ...options, headers, cache: 'no-store' });
  if (r.status === 401 || (r.status === 403 && path === '/page/state')) askForKey();
  if (!r.ok) {
    const text = await r.text();
    let reason = text;
    try { const e = JSON.parse(text).error; reason = e.message ?? e; } catch { /* it is a text */ }
    throw new Error(`${r.status}: ${reason}`);
  }
  return r;
}
function askForKey() {
  if (!$('ask').open) $('ask').showModal();
}
$('key').onclick = askForKey;
$('ask').firstElementChild.onsubmit = (e) => { e.preventDefault(); $('ask').close('ok'); };
$('ask').onclose = () => {
  if ($('ask').returnValue !== 'ok') return;
  key = $('secret').value.trim();
  $('secret').value = '';
  sessionStorage.setItem('tandem-key', key);
  poll();
};

// ---- what changes
const kept = 120;
const past = new Map();  // of each version: samples
let chosen = new URLSearchParams(location.hash.slice(1)).get('model'), models = [], before = null;
const idOf = (m) => m.name + '/' + m.version;

// The time that the part q of the requests between two states did not exceed.
function quantile(now, then, q) {
  const old = new Map(then ?? []);
  const fresh = now.map(([s, n]) => [s, n - (old.get(s) ?? 0)]).filter(([, n]) => n > 0);
  const all = fresh.reduce((sum, [, n]) => sum + n, 0);
  let seen = 0;
  for (const [s, n] of fresh) if ((seen += n) >= q * all) return s;
  return null;
}
function sample(m, then, seconds) {
  const d = (k) => Math.max(0, m[k] - then[k]);
  return { rate: d('ok') / seconds, p50: quantile(m.latency, then.latency, 0.5), p99: quantile(m.latency, then.latency, 0.99),
    batch: d('runs') ? d('rows') / d('runs') : null, tokens: m.text ? Math.max(0, m.text.tokens - then.text.tokens) / seconds : null,
    texts: m.text?.running ?? null };
}
async function poll() {
  let state;
  try {
    state = await (await ask('/page/state')).json();
  } catch (e) {
    $('state').className = 'pill off';
    $('state').textContent = e.message.startsWith('401') || e.message.startsWith('403') ? 'needs a key' : 'not reachable';
    return;
  }
  $('state').className = state.ready ? 'pill on' : 'pill off';
  $('state').textContent = state.draining ? 'shutting down' : state.ready ? 'ready' : 'a model failed to load';
  $('facts').textContent = `version ${state.version} · ${short(state.requests)} requests · ${state.connections} open connections · ${Math.round(state.memory / 1048576)} MB`;
  if (before && state.time > before.time)
    for (const m of state.models) {
      const then = before.models.find((b) => idOf(b) === idOf(m));
      if (!then || m.ok < then.ok) continue;
      const list = past.get(idOf(m)) ?? [];
      list.push(sample(m, then, state.time - before.time));
      past.set(idOf(m), list.slice(-kept));
    }
  const names = (list) => list.map(idOf).join();
  const changed = !before || names(before.models) !== names(state.models);
  before = state;
  models = state.models;
  if (changed) listModels();
  update();
}

function listModels() {
  if (!models.some((m) => idOf(m) === chosen))
    chosen = models.some((m) => m.name === chosen) ? idOf(models.findLast((m) => m.name === chosen)) : models.length ? idOf(models[0]) : null;
  $('models').replaceChildren(...models.map((m) => {
    const button = make('button', { onclick: () => { chosen = idOf(m); choose(); } }, make('b', {}, m.name), make('small', {}));
    button.dataset.id = idOf(m);
    return button;
  }));
  choose();
}
const shapeText = (p) => `${p.name}: ${p.datatype}[${p.shape.map((n) => n < 0 ? '?' : n).join(', ')}]`;
function choose() {
  const m = models.find((x) => idOf(x) === chosen);
  if (!m) {
    $('head').replaceChildren(make('h2', {}, 'No model is loaded'));
    $('panel').replaceChildren(make('p', { className: 'hint' }, 'Put a model into the folder that the server was started with.'));
    return;
  }
  $('head').replaceChildren(make('h2', {}, m.name), make('span', {}, `version ${m.version} · ${m.platform}`),
    make('code', {}, m.inputs.map(shapeText).join('  ') + '  →  ' + m.outputs.map((p) => p.name).join(', ')));
  if (m.note) $('head').append(make('span', {}, m.note));
  panelOf(m);
  update();
}

// ---- charts
function line(points, top, w, h) {
  let text = '', pen = 'M';
  points.forEach((v, i) => {
    if (v === null) { pen = 'M'; return; }
    text += `${pen}${(i + kept - points.length) * w / (kept - 1)},${h - v / top * h}`;
    pen = 'L';
  });
  return text;
}
function chart(title, now, series, format, names) {
  const w = 300, h = 74, values = series.flat().filter((v) => v !== null);
  const most = Math.max(...values, 0), step = 10 ** Math.floor(Math.log10(most || 1));
  const top = most ? Math.ceil(most / step * 2) / 2 * step : 1;
  const box = make('svg', { viewBox: `0 0 ${w} ${h + 14}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
  for (const y of [0, h / 2, h]) box.append(make('line', { class: 'grid', x1: 0, x2: w, y1: y, y2: y }));
  if (series.length === 1 && values.length) {
    const first = kept - series[0].length;
    box.append(make('path', { class: 'a0', d: `M${first * w / (kept - 1)},${h}` + line(series[0].map((v) => v ?? 0), top, w, h).replace('M', 'L') + `L${w},${h}Z` }));
  }
  series.forEach((s, k) => box.append(make('path', { class: 'l' + k, d: line(s, top, w, h) })));
  const legend = make('small', { className: 'key' });
  names?.forEach((n, k) => legend.append(make('i', { className: k ? 'b' : '' }), n));
  return make('div', { className: 'card chart' }, make('h3', {}, title),
    make('div', { className: 'now' }, now, make('small', {}, values.length ? '0 – ' + format(top) : 'no requests yet'), legend), box);
}
function update() {
  for (const button of $('models').children) {
    const m = models.find((x) => idOf(x) === button.dataset.id), last = past.get(button.dataset.id)?.at(-1);
    if (!m) continue;
    button.className = idOf(m) === chosen ? 'on' : '';
    button.querySelector('small').textContent = `v${m.version} · ${last ? short(last.rate) : 0} requests/s · ${short(m.ok)} so far`;
  }
  const list = past.get(chosen) ?? [], last = list.at(-1), m = models.find((x) => idOf(x) === chosen);
  if (!m) return $('charts').replaceChildren();
  const recent = (k) => list.findLast((s) => s[k] !== null)?.[k];
  const of = (k) => list.map((s) => s[k]);
  const cards = m.text ? [
    chart('Tokens per second', last ? short(last.tokens) : '0', [of('tokens')], short),
    chart('Running texts', String(m.text.running), [of('texts')], short),
    chart('Requests per second', last ? short(last.rate) : '0', [of('rate')], short)]
    : [chart('Requests per second', last ? short(last.rate) : '0', [of('rate')], short),
      chart('Latency', recent('p50') ? milli(recent('p50')) : '–', [of('p50'), of('p99')], milli, ['p50', 'p99']),
      chart('Rows in a batch', recent('batch') ? short(recent('batch')) : '–', [of('batch')], short)];
  $('charts').replaceChildren(...cards);
}
)JS";

// What a person tries.
inline constexpr const char* kTryScript = R"JS(
const quoted = (m) => encodeURIComponent(m.name) + '/' + m.version;
function scores(rows) {
  const most = Math.max(...rows.map(([, v]) => v));
  return rows.map(([label, v]) => {
    const fill = make('b');
    fill.style.width = `${100 * Math.max(0, Math.min(1, v))}%`;
    return make('div', { className: v === most ? 'score best' : 'score' }, make('span', { title: label }, label), make('i', {}, fill),
      make('span', {}, `${(100 * v).toFixed(1)} %`));
  });
}
// Numbers as probabilities: they are, or they are logits.
function probabilities(v) {
  const sum = v.reduce((a, b) => a + b, 0);
  if (v.every((x) => x >= 0) && Math.abs(sum - 1) < 1e-3) return v;
  const most = Math.max(...v), e = v.map((x) => Math.exp(x - most)), all = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / all);
}
async function show(out, doing) {
  const begin = performance.now();
  out.ariaBusy = 'true';
  try {
    const [r, inside] = await doing();
    const timing = r.headers.get('tandem-timing');
    out.replaceChildren(...inside, make('div', { className: 'time' }, `${milli((performance.now() - begin) / 1e3)} in all${timing ? ' · ' + timing.replaceAll(';', ' · ').replaceAll('=', ' ') : ''}`));
    out.dataset.done = out.querySelector('.score.best span')?.textContent ?? 'yes';
  } catch (e) {
    out.replaceChildren(make('div', { className: 'error' }, e.message));
  }
  out.ariaBusy = 'false';
}
async function answerOf(r) {
  if (r.headers.get('content-type') === 'image/png')
    return [make('img', { src: URL.createObjectURL(await r.blob()), alt: 'The answer' })];
  const json = JSON.parse(await r.text());
  const labels = !Array.isArray(json) && Object.keys(json).length && Object.values(json).every((v) => typeof v === 'number');
  return labels ? scores(Object.entries(json).sort((a, b) => b[1] - a[1])) : [make('pre', {}, JSON.stringify(json, null, 1))];
}
const send = (m, body, type) => async () => {
  const r = await ask(`/predictions/${quoted(m)}`, { method: 'POST', body, headers: { 'Content-Type': type } });
  return [r, await answerOf(r)];
};
async function inferJson(m, text) {
  const r = await ask(`/v2/models/${encodeURIComponent(m.name)}/versions/${m.version}/infer`, { method: 'POST', body: text });
  const json = await r.json();
  const [first] = json.outputs;
  const row = first.shape.length === 2 && first.shape[0] === 1 && first.shape[1] > 1 && first.shape[1] <= 20 && first.data.flat();
  return [r, row ? [...scores(probabilities(row).map((v, k) => [`${first.name}[${k}]`, v])), make('details', {}, make('summary', {}, 'as JSON'), make('pre', {}, JSON.stringify(json, null, 1)))]
    : [make('pre', {}, JSON.stringify(json, null, 1))]];
}
// Values of an image as a tensor: [1, c, h, w], 0 to 1.
function tensorOf(m, canvas) {
  const [p] = m.inputs, [c, h, w] = p.shape.slice(1);
  const small = make('canvas', { width: w, height: h }), pen = small.getContext('2d');
  pen.drawImage(canvas, 0, 0, w, h);
  const rgba = pen.getImageData(0, 0, w, h).data;
  const data = Array.from({ length: c * h * w }, (_, k) => rgba[(k % (h * w)) * 4 + Math.floor(k / (h * w))] / 255);
  return JSON.stringify({ inputs: [{ name: p.name, datatype: p.datatype, shape: [1, c, h, w], data }] });
}
const pngOf = (canvas) => new Promise((done) => canvas.toBlob(done, 'image/png'));

// The drawing as the usual sets have digits: its box, centred, with a rim where there is room for it.
function framed(board, side) {
  const n = board.width, rgba = board.getContext('2d').getImageData(0, 0, n, n).data;
  let [x0, y0, x1, y1] = [n, n, -1, -1];
  for (let k = 0; k < n * n; ++k)
    if (rgba[4 * k] > 30) { const x = k % n, y = (k - x) / n; x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y); }
  const out = make('canvas', { width: side, height: side }), pen = out.getContext('2d');
  pen.fillRect(0, 0, side, side);
  if (x1 < 0) return out;
  const size = Math.max(x1 - x0, y1 - y0) + 1, scale = (side >= 16 ? side * 20 / 28 : side) / size;
  const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2];
  pen.imageSmoothingQuality = 'high';
  pen.setTransform(scale, 0, 0, scale, side / 2 - cx * scale, side / 2 - cy * scale);
  pen.drawImage(board, 0, 0);
  return out;
}
function drawTab(m, out) {
  const board = make('canvas', { className: 'board', width: 280, height: 280, ariaLabel: 'Draw here' }), pen = board.getContext('2d', { willReadFrequently: true });
  const side = m.inputs[0].shape.at(-1);
  const clear = () => { pen.fillStyle = '#000'; pen.fillRect(0, 0, 280, 280); out.replaceChildren(make('p', { className: 'hint' }, 'The answer comes while you draw.')); };
  let busy = false, again = false;
  async function look() {
    if (busy) { again = true; return; }
    busy = true;
    const image = framed(board, side);
    await show(out, m.files ? send(m, await pngOf(image), 'image/png') : () => inferJson(m, tensorOf(m, image)));
    busy = false;
    if (again) { again = false; look(); }
  }
  const stroke = (points) => {
    Object.assign(pen, { strokeStyle: '#fff', lineWidth: 24, lineCap: 'round', lineJoin: 'round' });
    pen.beginPath();
    points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    look();
  };
  let last = null;
  const at = (e) => [e.offsetX * 280 / board.clientWidth, e.offsetY * 280 / board.clientHeight];
  board.onpointerdown = (e) => { last = at(e); board.setPointerCapture(e.pointerId); };
  board.onpointermove = (e) => { if (last) stroke([last, (last = at(e))]); };
  board.onpointerup = board.onpointercancel = () => { last = null; };
  clear();
  // An address may hold a drawing: #model=digits&draw=60,40,220,40,120,250
  const given = (new URLSearchParams(location.hash.slice(1)).get('draw') ?? '').split(',').map(Number);
  if (given.length >= 4 && given.every(Number.isFinite)) stroke(Array.from({ length: given.length >> 1 }, (_, k) => given.slice(2 * k, 2 * k + 2)));
  return [make('p', { className: 'hint' }, 'Draw with the mouse or a finger.'), board, make('div', { className: 'bar' }, make('button', { className: 'quiet', onclick: clear }, 'Clear'))];
}
function fileTab(m, out) {
  const input = make('input', { type: 'file', hidden: true, accept: m.files === 'image' || !m.files ? 'image/*' : m.files === 'sound' ? '.wav,.flac' : '' });
  const drop = make('div', { className: 'drop', tabIndex: 0, role: 'button' }, m.files === 'sound' ? 'Drop a WAV or FLAC file, or click' : 'Drop an image, or click');
  async function take(file) {
    if (!file) return;
    if (m.files === 'sound') return show(out, send(m, file, 'application/octet-stream'));
    const image = make('img', { src: URL.createObjectURL(file), alt: file.name });
    drop.replaceChildren(image);
    if (m.files) return show(out, send(m, file, file.type || 'application/octet-stream'));
    await image.decode();
    show(out, () => inferJson(m, tensorOf(m, image)));
  }
  drop.onclick = () => input.click();
  drop.onkeydown = (e) => { if (e.key === 'Enter' || e.key === ' ') input.click(); };
  drop.ondragover = (e) => { e.preventDefault(); drop.classList.add('over'); };
  drop.ondragleave = () => drop.classList.remove('over');
  drop.ondrop = (e) => { e.preventDefault(); drop.classList.remove('over'); take(e.dataTransfer.files[0]); };
  input.onchange = () => take(input.files[0]);
  return [drop, input];
}
function textTab(m, out, text, go) {
  const area = make('textarea', { value: text, spellcheck: false, ariaLabel: 'Input' });
  const run = () => show(out, () => go(area.value));
  area.onkeydown = (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run(); };
  return [area, make('div', { className: 'bar' }, make('button', { className: 'main', onclick: run }, 'Run'), make('span', {}, 'Ctrl + Enter'))];
}
function sampleJson(m) {
  const fill = (p) => {
    const shape = p.shape.map((n) => n < 0 ? 1 : n), n = shape.reduce((a, b) => a * b, 1);
    const whole = !/^(FP|BF)/.test(p.datatype);
    return { name: p.name, datatype: p.datatype, shape, data: Array.from({ length: Math.min(n, 4096) }, (_, k) => p.datatype === 'BOOL' ? false : whole ? 1 : +Math.sin(k + 1).toFixed(3)) };
  };
  return '{"inputs": [\n' + m.inputs.map((p) => '  ' + JSON.stringify(fill(p))).join(',\n') + '\n]}';
}
// The events of a stream, one after the other.
async function* events(r) {
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: ?/, '');
      if (data !== '[DONE]') yield JSON.parse(data);
    }
  }
}
function chatTab(m) {
  const messages = [], log = make('div', { className: 'chat' }), input = make('input', { placeholder: m.text.chat ? 'Write a message' : 'Write the beginning of a text', ariaLabel: 'Message' });
  const button = make('button', { className: 'main' }, 'Send'), status = make('span', {}, '');
  let stop = null;
  async function say(text) {
    log.append(make('div', { className: 'me' }, text));
    messages.push({ role: 'user', content: text });
    const bubble = make('div', { className: 'it' });
    log.append(bubble);
    stop = new AbortController();
    button.textContent = 'Stop';
    const begin = performance.now();
    let tokens = 0, first = 0;
    try {
      const body = { model: m.name, stream: true, max_tokens: 256, ...(m.text.chat ? { messages } : { prompt: text }) };
      const r = await ask(m.text.chat ? '/v1/chat/completions' : '/v1/completions', { method: 'POST', body: JSON.stringify(body), signal: stop.signal, headers: { 'Content-Type': 'application/json' } });
      for await (const e of events(r)) {
        if (e.error) throw new Error(e.error.message);
        first ||= performance.now() - begin;
        bubble.textContent += (m.text.chat ? e.choices[0]?.delta?.content : e.choices[0]?.text) ?? '';
        ++tokens;
        log.scrollTop = log.scrollHeight;
        status.textContent = `first token after ${first.toFixed(0)} ms · ${short(tokens / (performance.now() - begin) * 1e3)} tokens/s`;
      }
    } catch (e) {
      if (e.name !== 'AbortError') log.append(make('div', { className: 'error' }, e.message));
    }
    messages.push({ role: 'assistant', content: bubble.textContent });
    log.dataset.done = 'yes';
    stop = null;
    button.textContent = 'Send';
  }
  const go = () => { if (stop) return stop.abort(); const text = input.value.trim(); if (text) { input.value = ''; say(text); } };
  button.onclick = go;
  input.onkeydown = (e) => { if (e.key === 'Enter') go(); };
  const given = new URLSearchParams(location.hash.slice(1)).get('say');
  if (given) say(given);
  return [log, make('div', { className: 'row' }, input, button), make('div', { className: 'bar' }, status)];
}
async function embed(m, text) {
  const input = text.split('\n').filter((s) => s.trim());
  const r = await ask('/v1/embeddings', { method: 'POST', body: JSON.stringify({ model: m.name, input }), headers: { 'Content-Type': 'application/json' } });
  const vectors = (await r.json()).data.map((d) => d.embedding), dot = (a, b) => a.reduce((s, x, i) => s + x * b[i], 0);
  const alike = vectors.slice(1).map((v, k) => [input[k + 1], dot(v, vectors[0]) / Math.sqrt(dot(v, v) * dot(vectors[0], vectors[0]))]);
  return [r, alike.length ? [make('p', { className: 'hint' }, `Similar to “${input[0]}”:`), ...scores(alike)] : [make('pre', {}, vectors[0]?.slice(0, 64).map((x) => x.toFixed(4)).join(' ') + ' …')]];
}

function tabsOf(m) {
  const [p] = m.inputs, image = m.files === 'image' || (!m.files && m.inputs.length === 1 && p.shape.length === 4 && /^FP/.test(p.datatype) && [1, 3].includes(p.shape[1]) && p.shape[2] > 0 && p.shape[3] > 0);
  const tabs = [];
  if (m.text) tabs.push([m.text.chat ? 'Chat' : 'Text', () => chatTab(m), true]);
  if (m.embedding) tabs.push(['Similarity', (out) => textTab(m, out, 'A cat sits on the mat.\nA kitten lies on a rug.\nStocks fell on Monday.', (t) => embed(m, t))]);
  if (image && p.shape.length === 4 && p.shape[1] === 1 && p.shape[2] === p.shape[3] && p.shape[3] > 0) tabs.push(['Draw', (out) => drawTab(m, out)]);
  if (image || m.files === 'sound') tabs.push([image ? 'Image' : 'Sound', (out) => fileTab(m, out)]);
  if (m.files === 'text') tabs.push(['Text', (out) => textTab(m, out, '', (t) => send(m, t, 'text/plain')())]);
  if (m.files === 'table') tabs.push(['Row', (out) => textTab(m, out, '', (t) => send(m, t, 'text/csv')())]);
  if (m.inputs.length) tabs.push(['Tensors', (out) => textTab(m, out, sampleJson(m), (t) => inferJson(m, t))]);
  return tabs;
}
function panelOf(m) {
  const tabs = tabsOf(m), bar = make('div', { className: 'tabs' }), body = make('div', { className: 'try' });
  const open = (k) => {
    const out = make('div', { className: 'out' }, make('p', { className: 'hint' }, 'The answer appears here.'));
    const [, inside, whole] = tabs[k];
    body.className = whole ? 'try one' : 'try';
    body.replaceChildren(make('div', {}, ...inside(out)), ...(whole ? [] : [out]));
    [...bar.children].forEach((b, i) => { b.className = i === k ? 'on' : ''; });
  };
  bar.append(...tabs.map(([name], k) => make('button', { onclick: () => open(k) }, name)));
  const at = location.origin, auth = key ? " -H 'Authorization: Bearer KEY'" : '';
  const curl = m.text ? `curl ${at}/v1/${m.text.chat ? 'chat/' : ''}completions${auth} -H 'Content-Type: application/json' \\\n  -d '${m.text.chat ? `{"model": "${m.name}", "messages": [{"role": "user", "content": "Hello"}]}` : `{"model": "${m.name}", "prompt": "Hello"}`}'`
    : m.files ? `curl${auth} --data-binary @FILE ${at}/predictions/${m.name}` : `curl${auth} ${at}/v2/models/${m.name}/infer -d '${sampleJson(m).replaceAll('\n', ' ').slice(0, 400)}'`;
  $('panel').replaceChildren(bar, body, make('details', {}, make('summary', {}, 'From a shell'), make('pre', {}, curl)));
  if (tabs.length) open(0);
}
poll();
setInterval(() => { if (!document.hidden && !$('ask').open) poll(); }, 1000);
)JS";

}  // namespace tandem::serve
