// SPDX-License-Identifier: Apache-2.0
// A page that shows a camera, or an image that a person chose, to a net: it names the class, or
// draws the boxes of what it found.
#pragma once

namespace tandem::edge {

inline constexpr const char* kCameraPageBody = R"HTML(<main>
<div><canvas id="view"></canvas>
<p><button id="start">Start the camera</button>
<label class="file">Choose an image<input type="file" id="file" accept="image/*"></label>
<label id="bound" hidden>least score <input type="range" id="least" min="0.05" max="0.95" step="0.05" value="0.3"></label></p>
<p id="say">Images stay on this device.</p></div>
<div id="scores"></div>
</main>
)HTML";

inline constexpr const char* kCameraPageScript = R"JS(
const [input] = inputs;
const [, height, width] = input.shape;
const finds = outputs.length === 2;  // boxes and their scores
const view = byId('view'), canvas = view.getContext('2d');
const grabbed = document.createElement('canvas');
const grab = grabbed.getContext('2d', { willReadFrequently: true });
const zoom = Math.max(1, Math.round(640 / width));
[view.width, view.height] = [width * zoom, height * zoom];
[grabbed.width, grabbed.height] = [width, height];
grab.imageSmoothingQuality = canvas.imageSmoothingQuality = 'high';
const colours = ['#f28e2b', '#4e79a7', '#59a14f', '#e15759', '#b07aa1', '#76b7b2', '#edc948', '#ff9da7'];
const net = await load();
const video = document.createElement('video');
video.muted = video.playsInline = true;
byId('bound').hidden = !finds;

// The middle of an image in the proportions of the net's: u8 [3, height, width].
function pixelsOf(source, wide, high) {
  const scale = Math.min(wide / width, high / height), w = width * scale, h = height * scale;
  const part = [(wide - w) / 2, (high - h) / 2, w, h];
  grab.drawImage(source, ...part, 0, 0, width, height);
  canvas.drawImage(source, ...part, 0, 0, view.width, view.height);
  const rgba = grab.getImageData(0, 0, width, height).data, plane = width * height;
  const pixels = new Uint8Array(3 * plane);
  for (let k = 0; k < plane; ++k)
    for (let c = 0; c < 3; ++c) pixels[c * plane + k] = rgba[4 * k + c];
  return pixels;
}

function overlap(a, b) {
  const side = (k) => Math.max(0, Math.min(a[k + 2], b[k + 2]) - Math.max(a[k], b[k]));
  const area = (x) => (x[2] - x[0]) * (x[3] - x[1]), both = side(0) * side(1);
  return both / (area(a) + area(b) - both);
}
// The best boxes, those of one class that overlap by half left out.
function boxesOf({ boxes, scores: all }) {
  const classes = outputs[1].shape[1], least = Number(byId('least').value), found = [], kept = [];
  all.forEach((score, k) => {
    if (score < least) return;
    const cell = Math.floor(k / classes);
    found.push({ score, label: k % classes, box: [...boxes.subarray(4 * cell, 4 * cell + 4)] });
  });
  found.sort((a, b) => b.score - a.score);
  for (const one of found)
    if (kept.length < 100 && kept.every((o) => o.label !== one.label || overlap(o.box, one.box) <= 0.5))
      kept.push(one);
  return kept;
}
function showBoxes(found) {
  canvas.font = '14px system-ui,sans-serif';
  canvas.lineWidth = 2;
  const counts = new Map();
  for (const { score, label, box } of found) {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    const [x1, y1, x2, y2] = box.map((v) => v * zoom);
    canvas.strokeStyle = canvas.fillStyle = colours[label % colours.length];
    canvas.strokeRect(x1, y1, x2 - x1, y2 - y1);
    const text = `${labelOf(label)} ${score.toFixed(2)}`, wide = canvas.measureText(text).width + 8;
    const top = Math.max(0, y1 - 18);
    canvas.fillRect(x1 - 1, top, wide, 18);
    canvas.fillStyle = '#fff';
    canvas.fillText(text, x1 + 3, top + 14);
  }
  const most = Math.max(1, ...counts.values());
  scores.replaceChildren();
  const order = [...counts].sort((a, b) => b[1] - a[1]);
  order.forEach(([label, n], k) => addRow(labelOf(label), n / most, String(n), k === 0));
  scores.dataset.best = order.length ? labelOf(order[0][0]) : 'nothing';
  scores.dataset.count = String(found.length);
}

// An answer that comes after another image was shown is dropped.
let shown = 0;
async function show(source, wide, high) {
  const mine = ++shown, pixels = pixelsOf(source, wide, high), start = performance.now();
  const answer = await net.run({ [input.name]: pixels });
  if (mine !== shown) return;
  byId('say').textContent = `${(performance.now() - start).toFixed(1)} ms in the net, ${width} x ${height} pixels`;
  if (finds) showBoxes(boxesOf({ boxes: answer[outputs[0].name], scores: answer[outputs[1].name] }));
  else showClasses(answer[outputs[0].name]);
}

let run = 0;  // of the camera; a loop ends with its run
async function film(mine) {
  try {
    while (mine === run) {
      if (video.readyState >= 2) await show(video, video.videoWidth, video.videoHeight);
      await new Promise((resolve) => { requestAnimationFrame(resolve); });
    }
  } catch (error) {
    await camera.stop();
    failed('The net', error);
  }
}
const camera = startButton('camera', async () => {
  video.srcObject = await open({
    video: { width: { ideal: 640 }, height: { ideal: 480 }, facingMode: 'environment' } });
  await video.play();
  film(++run);
}, () => {
  ++run;
  close(video.srcObject);
  video.srcObject = null;
});

let chosen = null;
const showChosen = () => show(chosen, chosen.width, chosen.height);
fileButton('image', async (file) => {
  const image = await createImageBitmap(file);
  await camera.stop();
  chosen?.close();
  chosen = image;
  await showChosen();
});
byId('least').oninput = () => { if (chosen && !video.srcObject) showChosen(); };
)JS";

}  // namespace tandem::edge
