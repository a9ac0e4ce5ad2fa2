// SPDX-License-Identifier: Apache-2.0
// A page on which a person draws what a net shall recognise.
#pragma once

namespace tandem::edge {

inline constexpr const char* kDrawPageBody = R"HTML(<style>
#board{touch-action:none}#small{width:84px;height:84px;image-rendering:pixelated}
</style>
<main>
<div><canvas id="board" width="280" height="280"></canvas>
<p><button id="clear">Clear</button> <span id="time"></span></p>
<canvas id="small"></canvas><p>What the net sees</p></div>
<div id="scores"></div>
</main>
)HTML";

inline constexpr const char* kDrawPageScript = R"JS(
const board = byId('board');
const pen = board.getContext('2d', { willReadFrequently: true });
const small = byId('small');
const [input] = inputs, [output] = outputs;
const side = Math.sqrt(size(input));
small.width = small.height = side;
const net = await Net.load(moduleBytes);

// The smallest box around the ink, and the centre of its mass; null where nothing is drawn.
function findInk(ink, n) {
  let left = n, right = -1, top = n, bottom = -1, mass = 0, x = 0, y = 0;
  for (let i = 0; i < n; ++i)
    for (let j = 0; j < n; ++j) {
      const v = ink[i * n + j];
      if (v < 0.1) continue;
      left = Math.min(left, j); right = Math.max(right, j);
      top = Math.min(top, i); bottom = Math.max(bottom, i);
      mass += v; x += v * j; y += v * i;
    }
  return mass ? { left, top, width: right - left + 1, height: bottom - top + 1, x: x / mass, y: y / mass } : null;
}

// The drawing as images of the usual sets are: from 16 pixels on as in MNIST (20 of 28 pixels, the
// centre of mass in the middle), smaller ones filled by the box. Values are 0 to 1.
function shrink() {
  const n = board.width;
  const rgba = pen.getImageData(0, 0, n, n).data;
  const ink = Float32Array.from({ length: n * n }, (_, k) => rgba[4 * k] / 255);
  const box = findInk(ink, n);
  const image = new Float32Array(side * side);
  if (!box) return image;
  const framed = side >= 16;
  const step = Math.max(box.width, box.height) / (framed ? side * 20 / 28 : side);
  const x0 = (framed ? box.x : box.left + box.width / 2) - step * side / 2;
  const y0 = (framed ? box.y : box.top + box.height / 2) - step * side / 2;
  const samples = 8;
  for (let i = 0; i < side * samples; ++i)
    for (let j = 0; j < side * samples; ++j) {
      const y = Math.floor(y0 + (i + 0.5) / samples * step), x = Math.floor(x0 + (j + 0.5) / samples * step);
      if (x < 0 || y < 0 || x >= n || y >= n) continue;
      image[Math.floor(i / samples) * side + Math.floor(j / samples)] += ink[y * n + x] / samples ** 2;
    }
  return image;
}

function show() {
  const image = shrink();
  const sketch = small.getContext('2d'), pixels = sketch.createImageData(side, side);
  image.forEach((v, k) => pixels.data.set([255 * v, 255 * v, 255 * v, 255], 4 * k));
  sketch.putImageData(pixels, 0, 0);
  const start = performance.now();
  const seen = input.dtype === 'uint8' ? Uint8Array.from(image, (v) => Math.round(255 * v)) : image;
  const answer = net.run({ [input.name]: seen })[output.name];
  byId('time').textContent = `${(performance.now() - start).toFixed(2)} ms`;
  showClasses(answer);
}

function clear() {
  pen.fillStyle = '#000';
  pen.fillRect(0, 0, board.width, board.height);
  scores.replaceChildren();
  delete scores.dataset.best;
}
function stroke(points) {
  pen.strokeStyle = '#fff';
  pen.lineWidth = 24;
  pen.lineCap = pen.lineJoin = 'round';
  pen.beginPath();
  points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
  show();
}

let last = null;
const at = (event) => [event.offsetX, event.offsetY];
board.onpointerdown = (event) => { last = at(event); board.setPointerCapture(event.pointerId); };
board.onpointermove = (event) => { if (last) stroke([last, (last = at(event))]); };
board.onpointerup = board.onpointercancel = () => { last = null; };
byId('clear').onclick = clear;
clear();
// An address may hold a drawing: #60,40,220,40,120,250 is one stroke through three points.
const numbers = location.hash.slice(1).split(',').map(Number);
if (numbers.length >= 4 && numbers.every(Number.isFinite))
  stroke(Array.from({ length: numbers.length >> 1 }, (_, k) => numbers.slice(2 * k, 2 * k + 2)));
)JS";

}  // namespace tandem::edge
