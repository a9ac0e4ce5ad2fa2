// SPDX-License-Identifier: Apache-2.0
// The script net.mjs, below the lines that list the ports, and the part of net.d.mts that all nets
// share.
#pragma once

namespace tandem::edge {

inline constexpr const char* kLoaderScript = R"JS(
const arrays = {
  float64: Float64Array, float32: Float32Array, float16: Uint16Array, bfloat16: Uint16Array,
  int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array,
  uint8: Uint8Array, bool: Uint8Array,
};
const inNode = typeof process !== 'undefined' && Boolean(process.versions?.node);
const threads = inNode ? await import('node:worker_threads') : null;
const workerName = 'tandem-net';

const count = (port) => port.shape.reduce((a, b) => a * b, 1);
const describe = (port) => `${port.dtype}[${port.shape.join(', ')}]`;

async function compile(source = './net.wasm') {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  let response = source;
  if (!(typeof Response !== 'undefined' && source instanceof Response)) {
    const url = new URL(source, import.meta.url);
    if (inNode && url.protocol === 'file:') {
      const { readFile } = await import('node:fs/promises');
      return WebAssembly.compile(await readFile(url));
    }
    response = await fetch(url);
  }
  if (!response.ok) throw new Error(`${response.url}: the server answered ${response.status}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

function checkNames(values) {
  const known = inputs.map((port) => port.name);
  if (values === null || typeof values !== 'object' || ArrayBuffer.isView(values))
    throw new TypeError(`run() wants an object with the inputs ${known.join(', ')}`);
  for (const name of Object.keys(values))
    if (!known.includes(name))
      throw new TypeError(`there is no input '${name}'; the inputs are ${known.join(', ')}`);
}

function checkValue(port, value) {
  const type = arrays[port.dtype];
  const want = `input '${port.name}' is ${describe(port)}: a ${type.name} of ${count(port)}`;
  if (value === undefined) throw new TypeError(`${want}; it was not given`);
  if (!(value instanceof type) && !Array.isArray(value))
    throw new TypeError(`${want}; got ${value?.constructor?.name ?? String(value)}`);
  if (value.length !== count(port)) throw new RangeError(`${want}; got ${value.length}`);
}

export class Net {
  #exports;
  #views;

  constructor(instance) {
    this.#exports = instance.exports;
    this.#views = [...inputs, ...outputs].map((port, k) =>
      new arrays[port.dtype](this.#exports.memory.buffer, this.#exports.address(k), count(port)));
  }

  static async load(source) {
    const instance = await WebAssembly.instantiate(await compile(source), {});
    if (typeof instance.exports.address !== 'function')
      throw new TypeError('this module was not written by `tandem compile --target wasm`');
    if (instance.exports.signature() !== signature)
      throw new TypeError('this module belongs to another net.mjs: copy both from one folder');
    return new Net(instance);
  }

  run(values) {
    checkNames(values);
    inputs.forEach((port) => checkValue(port, values[port.name]));
    inputs.forEach((port, k) => this.#views[k].set(values[port.name]));
    if (this.#exports.run() !== 0) throw new RangeError('an index among the inputs is out of range');
    return Object.fromEntries(
      outputs.map((port, k) => [port.name, this.#views[inputs.length + k].slice()]));
  }
}

export class NetWorker {
  #worker;
  #waiting = new Map();
  #ended;
  #next = 0;

  constructor() {
    const url = new URL(import.meta.url);
    const done = ({ id, result, error }) => {
      const asked = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) asked?.resolve(result);
      else asked?.reject(new Error(error));
    };
    const failed = (error) => this.#end(error);
    if (threads) {
      this.#worker = new threads.Worker(url, { workerData: workerName });
      this.#worker.on('message', done);
      this.#worker.on('error', failed);
    } else {
      this.#worker = new Worker(url, { type: 'module', name: workerName });
      this.#worker.onmessage = (event) => done(event.data);
      this.#worker.onerror = (event) => failed(new Error(event.message || `${url} did not load`));
    }
  }

  static async load(source) {
    const module = await compile(source);
    const net = new NetWorker();
    try {
      await net.#ask({ module });
    } catch (error) {
      net.close();
      throw error;
    }
    return net;
  }

  run(values) {
    return this.#ask({ values });
  }

  close() {
    this.#worker.terminate();
    this.#end(new Error('the worker was closed'));
  }

  #end(error) {
    this.#ended ??= error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #ask(message) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, ...message });
    });
  }
}

// In a worker that NetWorker started: answers its messages in their order.
function answer(post) {
  let net;
  let last = Promise.resolve();
  const reply = async ({ id, module, values }) => {
    try {
      if (module) net = await Net.load(module);
      const result = module ? undefined : net.run(values);
      post({ id, result }, result ? Object.values(result).map((array) => array.buffer) : []);
    } catch (error) {
      post({ id, error: error.message }, []);
    }
  };
  return (message) => {
    last = last.then(() => reply(message));
  };
}

if (threads?.workerData === workerName) {
  const { parentPort } = threads;
  parentPort.on('message', answer((data, buffers) => parentPort.postMessage(data, buffers)));
} else if (typeof WorkerGlobalScope !== 'undefined' && self.name === workerName) {
  const reply = answer((data, buffers) => self.postMessage(data, buffers));
  self.onmessage = (event) => reply(event.data);
}
)JS";

inline constexpr const char* kLoaderTypes = R"TS(
/** An input or output: elements are row-major. float16 and bfloat16 are given as their bits. */
export interface Port {
  readonly name: string;
  readonly dtype: 'float64' | 'float32' | 'float16' | 'bfloat16' | 'int64' | 'int32' | 'int16' |
    'int8' | 'uint8' | 'bool';
  readonly shape: readonly number[];
}
export const inputs: readonly Port[];
export const outputs: readonly Port[];

/** The module: its address (relative to net.mjs), its bytes, or what was compiled from them. */
export type Source =
  string | URL | ArrayBuffer | ArrayBufferView | Response | WebAssembly.Module;

/** The net in this thread. */
export class Net {
  /** Without a source: net.wasm beside net.mjs. */
  static load(source?: Source): Promise<Net>;
  /**
   * Throws TypeError for an input that is missing, unknown or of another type, RangeError for a
   * wrong number of elements or an index out of range. The result is the caller's own.
   */
  run(inputs: Inputs): Outputs;
}

/** The net in a worker of its own, so that the page stays responsive; calls run in their order. */
export class NetWorker {
  static load(source?: Source): Promise<NetWorker>;
  run(inputs: Inputs): Promise<Outputs>;
  /** Ends the worker; calls that wait are rejected. */
  close(): void;
}
)TS";

}  // namespace tandem::edge
