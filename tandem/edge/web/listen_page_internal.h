// SPDX-License-Identifier: Apache-2.0
// A page that hears words by a microphone, or from a file that a person chose, and names them.
#pragma once

namespace tandem::edge {

inline constexpr const char* kListenPageBody = R"HTML(<main>
<div><canvas id="wave" width="640" height="160"></canvas>
<p><button id="start">Start the microphone</button>
<label class="file">Choose a recording<input type="file" id="file" accept="audio/*"></label>
<label><input type="checkbox" id="always"> listen all the time</label></p>
<p id="say">Say a word. Sound stays on this device.</p>
<p id="heard" style="font-size:1.6em"></p></div>
<div id="scores"></div>
</main>
)HTML";

/// Needs `rate`, the samples a second that the net was trained on.
inline constexpr const char* kListenPageScript = R"JS(
const [input] = inputs, [output] = outputs;
const length = size(input);
const net = await load();
const wave = byId('wave'), pen = wave.getContext('2d');

// To another rate by a sinc with a Hann window, which lets little pass above half the lower rate.
function resample(x, from, to) {
  if (from === to) return x;
  const zeros = 6, cut = Math.min(1, to / from) * 0.99, reach = zeros / cut;
  return Float32Array.from({ length: Math.floor(x.length * to / from) }, (_, i) => {
    const at = i * from / to;
    let sum = 0;
    for (let k = Math.max(0, Math.ceil(at - reach)); k <= Math.min(x.length - 1, at + reach); ++k) {
      const t = (k - at) * cut, window = Math.cos(Math.PI * t / zeros / 2) ** 2;
      sum += x[k] * cut * window * (t === 0 ? 1 : Math.sin(Math.PI * t) / (Math.PI * t));
    }
    return sum;
  });
}

// What was heard, drawn and named. Cut, or filled with silence.
async function recognise(samples) {
  const x = new Float32Array(length);
  x.set(samples.subarray(0, length));
  drawWave(x);
  const start = performance.now();
  const answer = await net.run({ [input.name]: x });
  const best = showClasses(answer[output.name]);
  byId('say').textContent = `${(performance.now() - start).toFixed(1)} ms in the net`;
  if (byId('always').checked) return;
  const word = document.createElement('b');
  word.textContent = `${best.label} `;
  byId('heard').prepend(word);
}

function drawWave(x) {
  const { width, height } = wave, most = x.reduce((m, v) => Math.max(m, Math.abs(v)), 0.02);
  pen.fillStyle = '#000';
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = '#7fb0e0';
  for (let c = 0; c < width; ++c) {
    const part = x.subarray(Math.floor(c * x.length / width), Math.ceil((c + 1) * x.length / width));
    const high = part.reduce((m, v) => Math.max(m, Math.abs(v)), 0) / most * height / 2;
    pen.fillRect(c, height / 2 - high, 1, 2 * high + 1);
  }
}

// Words begin where it gets louder than before and end in silence, or when the net is full.
class Words {
  constructor(rate) {
    this.rate = rate;
    this.floor = 1e-3;
    this.past = [];  // blocks before the word, or of all that the net takes
    this.word = null;
    this.quiet = 0;
    this.since = 0;
  }
  static join(blocks) {
    const all = new Float32Array(blocks.reduce((n, b) => n + b.length, 0));
    let at = 0;
    for (const b of blocks) { all.set(b, at); at += b.length; }
    return all;
  }
  // The samples to recognise, or null.
  hear(block) {
    const level = Math.sqrt(block.reduce((s, v) => s + v * v, 0) / block.length);
    const blockSeconds = block.length / this.rate, netSeconds = length / rate;
    this.floor = Math.min(Math.max(this.floor * 1.02, 1e-4), Math.max(level, 1e-4));
    this.past.push(block);
    while (this.past.length * blockSeconds > netSeconds) this.past.shift();
    if (byId('always').checked) {
      this.word = null;
      this.since += blockSeconds;
      if (this.since < 0.25) return null;
      this.since = 0;
      return Words.join(this.past);
    }
    if (!this.word) {
      if (level < Math.max(0.008, 3 * this.floor)) return null;
      this.word = this.past.slice(-2);
      this.quiet = 0;
      return null;
    }
    this.word.push(block);
    this.quiet = level < Math.max(0.005, 2 * this.floor) ? this.quiet + blockSeconds : 0;
    if (this.quiet < 0.25 && this.word.length * blockSeconds < netSeconds) return null;
    const heard = Words.join(this.word);
    this.word = null;
    return heard;
  }
}

const tap = `registerProcessor('tap', class extends AudioWorkletProcessor {
  constructor() { super(); this.block = new Float32Array(1024); this.at = 0; }
  process([input]) {
    if (!input.length) return true;
    this.block.set(input[0], this.at);
    this.at += input[0].length;
    if (this.at === 1024) { this.port.postMessage(this.block.slice()); this.at = 0; }
    return true;
  }
});`;
let stream = null, audio = null;
async function listen() {
  stream = await open({
    audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
  audio = new AudioContext();
  await audio.audioWorklet.addModule(`data:text/javascript,${encodeURIComponent(tap)}`);
  const from = audio.sampleRate, node = new AudioWorkletNode(audio, 'tap'), words = new Words(from);
  let busy = false;
  node.port.onmessage = async ({ data }) => {
    const heard = words.hear(data);
    if (!heard || busy) return;
    busy = true;
    try {
      await recognise(resample(heard, from, rate));
    } catch (error) {
      failed('The net', error);
    }
    busy = false;
  };
  audio.createMediaStreamSource(stream).connect(node);
  await audio.resume();
}
startButton('microphone', listen, async () => {
  const old = audio;
  close(stream);
  stream = audio = null;
  await old?.close();
});
fileButton('recording', async (file) => {
  const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  await recognise(sound.getChannelData(0));
});
)JS";

}  // namespace tandem::edge
