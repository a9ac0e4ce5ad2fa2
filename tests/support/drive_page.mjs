// SPDX-License-Identifier: Apache-2.0
// Opens a page in headless chromium, waits until an expression is true there, and writes what it
// gave and an image of the page:
//   node drive_page.mjs FOLDER PAGE EXPRESSION SHOT [FLAG ...]
// The browser is spoken to by pipes (Chrome DevTools Protocol), so time is real: cameras,
// microphones and workers run.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';

const [folder, page, expression, shot, ...flags] = process.argv.slice(2);
const browser = spawn('chromium', [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
  `--user-data-dir=${folder}/profile`, '--remote-debugging-pipe', '--window-size=1000,640',
  '--hide-scrollbars', ...flags, 'about:blank',
], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
const [, , , to, from] = browser.stdio;
const waiting = new Map(), log = [];
let last = 0, rest = '', session;
const ask = (method, params = {}) => new Promise((resolve, reject) => {
  waiting.set(++last, { resolve, reject });
  to.write(JSON.stringify({ id: last, method, params, sessionId: session }) + '\0');
});
from.on('data', (bytes) => {
  const parts = (rest + bytes).split('\0');
  rest = parts.pop();
  for (const part of parts) {
    const { id, result, error, method, params } = JSON.parse(part);
    if (method === 'Runtime.exceptionThrown')
      log.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (!waiting.has(id)) continue;
    if (error) waiting.get(id).reject(new Error(error.message));
    else waiting.get(id).resolve(result);
    waiting.delete(id);
  }
});
let ended = null;
const end = (code) => { ended = code; browser.kill(); };
browser.on('exit', () => {
  if (ended === null) console.error('chromium ended');
  process.exit(ended ?? 2);
});
for (const pipe of [to, from]) pipe.on('error', () => {});  // when the browser ends
setTimeout(async () => {
  const shown = await ask('Runtime.evaluate', { expression: 'document.body.innerText' });
  console.error(`${expression} is not true after 30 s\n${shown.result.value}\n${log.join('\n')}`);
  end(1);
}, 30000);

const { targetId } = await ask('Target.createTarget', { url: page });
session = (await ask('Target.attachToTarget', { targetId, flatten: true })).sessionId;
await ask('Runtime.enable');
let value;
const wait = () => new Promise((resolve) => { setTimeout(resolve, 100); });
for (;;) {
  value = (await ask('Runtime.evaluate', { expression, returnByValue: true })).result.value;
  if (value) break;
  if (log.length) { console.error(log.join('\n')); end(1); break; }
  await wait();
}
if (value) {
  const { data } = await ask('Page.captureScreenshot', { format: 'png' });
  writeFileSync(shot, Buffer.from(data, 'base64'));
  console.log(String(value));
  end(0);
}
