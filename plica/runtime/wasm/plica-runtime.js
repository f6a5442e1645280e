// plica-runtime: runs artefacts that Plica compiled for WebAssembly, in a page and in Node, and those
// for WebGPU in a page.
//
//     import { load } from "./plica-runtime.js";
//     const model = await load("model.plica");          // a URL, a path in Node, or the bytes
//     const { output } = await model.run({ x: new Float32Array(4) });   // of WebAssembly, at once
//     output.data, output.shape
//
// An artefact is a zip of stored members with its own digest at the end; nothing in it is used
// before the digest was compared.  Errors are PlicaErrors with the codes of the compiler.

const FORMAT = 1;
const ALIGNMENT = 64;
const PAGE = 65536;
const ENTRY = "plica_main";

/** What went wrong, with a code that docs/errors.md explains. */
export class PlicaError extends Error {
  constructor(code, message) {
    super(`${message} [${code}]`);
    this.name = "PlicaError";
    this.code = code;
  }
}

const damaged = (message) => new PlicaError("bad-artefact", message);

// --- dtypes ---------------------------------------------------------------------------------------

const ARRAYS = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array,
  u32: Uint32Array, i32: Int32Array, u64: BigUint64Array, i64: BigInt64Array,
  f32: Float32Array, f64: Float64Array,
  f16: Uint16Array, bf16: Uint16Array, // as their codes
};

const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array; // narrower floats are codes of a byte

class Port {
  constructor([name, shape, dtype]) {
    this.name = name;
    this.shape = shape;
    this.dtype = dtype;
    this.length = shape.reduce((all, size) => all * size, 1);
    this.bytes = this.length * arrayOf(dtype).BYTES_PER_ELEMENT;
  }

  /** The given array, if it is what this port takes. */
  take(given) {
    const wanted = arrayOf(this.dtype);
    if (given === undefined) {
      throw new PlicaError("input-missing", `Input '${this.name}' is not given.`);
    }
    const found = Array.isArray(given) ? wanted.from(given) : given;
    if (!(found instanceof wanted)) {
      const kind = found?.constructor?.name ?? typeof found;
      const text = `Input '${this.name}' is a ${kind}, and must be a ${wanted.name} (${this.dtype}).`;
      throw new PlicaError("input-dtype", text);
    }
    if (found.length !== this.length) {
      const text = `Input '${this.name}' has ${found.length} elements, and must have ${this.length}`;
      throw new PlicaError("input-shape", `${text} (${this.shape.join(" x ")}).`);
    }
    return found;
  }
}

// --- archives -------------------------------------------------------------------------------------

const SEAL = /plica artefact (\d{1,6}) sha256:([0-9a-f]{64})$/;
const text = (bytes) => new TextDecoder().decode(bytes);

async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle;
  const whole = subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : digest(bytes);
  return Array.from(whole, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** SHA-256 where a page has no `crypto.subtle`, which asks for a secure connection. */
function digest(bytes) {
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  const part = (x) => Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;
  const keys = primes.map((p) => part(Math.cbrt(p)));
  const state = Int32Array.from(primes.slice(0, 8), (p) => part(Math.sqrt(p)));
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  const w = new Int32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const one = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3);
      const two = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
      w[i] = (w[i - 16] + one + w[i - 7] + two) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const mixed = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const first = (h + mixed + ((e & f) ^ (~e & g)) + keys[i] + w[i]) | 0;
      const other = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const second = (other + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((each, i) => { state[i] = (state[i] + each) | 0; });
  }
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((each, i) => out.setInt32(4 * i, each));
  return new Uint8Array(out.buffer);
}

/** The members of an archive, after its digest was compared. */
async function unpack(bytes) {
  const seal = SEAL.exec(text(bytes.subarray(-96)));
  if (!seal) throw damaged("The file is no artefact of Plica, or its end is missing.");
  const body = bytes.subarray(0, bytes.length - seal[0].length);
  if ((await sha256(body)) !== seal[2]) throw damaged("The artefact is damaged: its digest is another.");
  if (Number(seal[1]) > FORMAT) {
    throw new PlicaError("newer-version", "The artefact was written by a newer version of Plica.");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = body.length - 22; // the record at the end, whose comment is the seal
  const members = new Map();
  try {
    if (view.getUint32(end, true) !== 0x06054b50) throw new RangeError("no end");
    let at = view.getUint32(end + 16, true);
    for (let left = view.getUint16(end + 10, true); left > 0; left--) {
      const [size, name, extra, said] = [24, 28, 30, 32].map((n, i) =>
        i ? view.getUint16(at + n, true) : view.getUint32(at + n, true));
      const where = view.getUint32(at + 42, true);
      const start = where + 30 + view.getUint16(where + 26, true) + view.getUint16(where + 28, true);
      if (view.getUint16(at + 10, true) !== 0 || start + size > body.length) throw new RangeError("size");
      members.set(text(bytes.subarray(at + 46, at + 46 + name)), bytes.subarray(start, start + size));
      at += 46 + name + extra + said;
    }
  } catch (error) {
    throw damaged(`The artefact is no readable zip file (${error.message}).`);
  }
  return members;
}

// --- mathematics ----------------------------------------------------------------------------------

/** The error function: a series of positive terms, and a continued fraction far from 0. */
function erf(x) {
  const a = Math.abs(x);
  if (!(a < 6)) return Number.isNaN(x) ? x : Math.sign(x);
  if (a < 2.5) {
    let term = a, sum = a;
    for (let n = 1; term > sum * 1e-17; n++) sum += term *= (2 * a * a) / (2 * n + 1);
    return (Math.sign(x) * 2 * sum * Math.exp(-a * a)) / Math.sqrt(Math.PI) || x;
  }
  let tail = a;
  for (let n = 60; n > 0; n--) tail = a + n / 2 / tail;
  return Math.sign(x) * (1 - Math.exp(-a * a) / (tail * Math.sqrt(Math.PI)));
}

/** Powers as C has them: 1 to any power is 1, and so is -1 to an infinite one. */
const pow = (x, y) => (x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y);

const OWN = { erf, pow, exp2: (x) => pow(2, x), fmod: (x, y) => x % y };

/** The functions that modules may call, by their names in C; those of f32 end with an f. */
function mathematics(name) {
  const plain = (word) => OWN[word] ?? (typeof Math[word] === "function" ? Math[word] : undefined);
  if (plain(name)) return plain(name);
  const wide = name.endsWith("f") ? plain(name.slice(0, -1)) : undefined;
  if (!wide) throw new PlicaError("unsupported", `The module calls '${name}', which is not known here.`);
  return (...given) => Math.fround(wide(...given));
}

// --- models ---------------------------------------------------------------------------------------

const padded = (size) => Math.ceil(Math.max(size, 1) / ALIGNMENT) * ALIGNMENT;

/** The arrays that a model takes, by name or in order; whatever else is given is refused. */
function takenBy(inputs, given) {
  const byName = Array.isArray(given)
    ? Object.fromEntries(inputs.map((port, number) => [port.name, given[number]]))
    : given;
  const extra = Array.isArray(given)
    ? (given.length > inputs.length ? `${given.length} values` : undefined)
    : Object.keys(given).find((name) => !inputs.some((port) => port.name === name));
  if (extra !== undefined) throw new PlicaError("input-unknown", `There is no input for '${extra}'.`);
  return inputs.map((port) => port.take(byName[port.name]));
}

const outside = (source) => new PlicaError(
  "index-out-of-bounds", `An index that ${source} was given is outside the tensor it selects from.`);

/** A compiled model: its memory, and the one function that runs it. */
export class Model {
  #exports; #memory; #table; #places; #sources; #workers = [];

  constructor(manifest, instance, params, shared) {
    const signature = manifest.interface;
    this.inputs = signature.inputs.map((each) => new Port(each));
    this.outputs = signature.outputs.map((each) => new Port(each));
    this.target = manifest.target.triple;
    this.#sources = manifest.sources;
    this.#exports = instance.exports;
    const memory = this.#memory = shared ?? instance.exports.memory;
    const base = padded(instance.exports.__heap_base.value);
    const ports = [...this.inputs, ...this.outputs];
    const work = base + padded(params.length);
    let at = work + padded(manifest.workspace);
    this.#places = ports.map((port) => {
      const place = at;
      at += padded(port.bytes);
      return place;
    });
    this.#table = at;
    const words = [...this.#places, ...manifest.constants.map(([start]) => base + start), work];
    const more = Math.ceil((at + 4 * words.length - memory.buffer.byteLength) / PAGE);
    try {
      if (more > 0) memory.grow(more);
    } catch {
      throw new PlicaError("no-memory", `There is not enough memory for the model: ${at} bytes.`);
    }
    new Uint8Array(memory.buffer).set(params, base);
    new Uint32Array(memory.buffer, at, words.length).set(words);
  }

  /** Have a given number of threads share the work; those beside this one are workers with the same memory. */
  async share(module, threads) {
    if (!this.#exports.plica_threads) return; // no loop of the model is parallel
    const from = Math.ceil(this.#memory.buffer.byteLength / PAGE) * PAGE;
    try {
      this.#memory.grow(((threads - 1) * STACK) / PAGE);
    } catch {
      throw new PlicaError("no-memory", `There is no memory for the stacks of ${threads} threads.`);
    }
    for (let number = 1; number < threads; number++) {
      this.#workers.push(await started({ module, memory: this.#memory, stack: from + number * STACK }));
    }
    this.#exports.plica_threads(threads);
  }

  /** End the workers; the model goes on with one thread. */
  close() {
    this.#exports.plica_threads?.(1);
    for (const each of this.#workers.splice(0)) each.terminate();
  }

  /** Run the model on arrays by name, or in order; gives `{data, shape, dtype}` by name. */
  run(given = {}) {
    const taken = takenBy(this.inputs, given);
    const memory = this.#memory;
    taken.forEach((array, number) => {
      new array.constructor(memory.buffer, this.#places[number], array.length).set(array);
    });
    const code = Number(this.#exports[ENTRY](this.#table));
    if (code) throw outside(this.#sources[code - 1]);
    const results = this.outputs.map((port, number) => {
      const place = this.#places[this.inputs.length + number];
      const data = new (arrayOf(port.dtype))(memory.buffer, place, port.length).slice();
      return [port.name, { data, shape: port.shape, dtype: port.dtype }];
    });
    return Object.fromEntries(results);
  }
}

// --- threads --------------------------------------------------------------------------------------

const STACK = 1 << 22; // bytes of a thread
const LONGEST = 1 << 15; // pages of a memory that is shared
const NAME = "plica-worker";
const node = globalThis.process?.versions?.node ? await import("node:worker_threads") : undefined;

/** What a module imports: functions, and the memory where threads share one. */
function imported(module, memory) {
  const env = {};
  for (const { name, kind } of WebAssembly.Module.imports(module)) {
    env[name] = kind === "memory" ? memory : mathematics(name);
  }
  return { env };
}

/** A worker that has begun to wait for work. */
function started(given) {
  const url = new URL(import.meta.url);
  const worker = node
    ? new node.Worker(url, { workerData: { [NAME]: given } })
    : new Worker(url, { type: "module", name: NAME });
  worker.unref?.(); // a program does not wait for its workers
  return new Promise((resolve, reject) => {
    const failed = (error) => reject(new PlicaError("unsupported", `No thread: ${error.message ?? error}.`));
    const ready = () => resolve(worker);
    if (node) {
      worker.once("message", ready).once("error", failed);
    } else {
      worker.onmessage = (event) => (event.data === "here" ? worker.postMessage(given) : ready());
      worker.onerror = failed;
    }
  });
}

/** What a worker does: an instance of its own, with a stack of its own, works until it is ended. */
async function work({ module, memory, stack }, say) {
  const { exports } = await WebAssembly.instantiate(module, imported(module, memory));
  exports.__stack_pointer.value = stack;
  say("ready");
  exports.plica_worker();
}

if (node?.workerData?.[NAME]) {
  work(node.workerData[NAME], (said) => node.parentPort.postMessage(said));
} else if (!node && globalThis.name === NAME && typeof WorkerGlobalScope !== "undefined") {
  globalThis.onmessage = ({ data }) => work(data, (said) => globalThis.postMessage(said));
  globalThis.postMessage("here");
}

// --- models on a GPU ------------------------------------------------------------------------------

const GROUP = 64; // work items of a group, where a launch has several
const ACROSS = 65535; // groups along one axis of a launch, at most
const SHADER = "// shader ";
const words = (size) => Math.ceil(size / 4) * 4;
const block = (size) => Math.ceil(Math.max(size, 1) / 256) * 256;

/** A compiled model on a GPU: one buffer in which all tensors lie, and what is launched on it. */
export class GpuModel {
  #device; #steps; #places; #scratch; #memory; #between; #flags; #sources; #pipelines; #layout;

  static async load(manifest, code, params) {
    const adapter = await globalThis.navigator?.gpu?.requestAdapter();
    if (!adapter) throw new PlicaError("no-toolchain", "There is no device of WebGPU here.");
    if (manifest.target.features.includes("+int64")) {
      const said = "The model computes with integers of 64 bits, which browsers have not on a GPU.";
      throw new PlicaError("other-machine", said);
    }
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    const limits = { maxBufferSize, maxStorageBufferBindingSize };
    const model = new GpuModel();
    const device = await adapter.requestDevice({ requiredLimits: limits });
    await model.#prepare(manifest, device, code, params);
    return model;
  }

  async #prepare(manifest, device, code, params) {
    const layout = manifest.device;
    const { steps } = layout;
    this.inputs = manifest.interface.inputs.map((each) => new Port(each));
    this.outputs = manifest.interface.outputs.map((each) => new Port(each));
    this.target = manifest.target.triple;
    this.#sources = manifest.sources;
    this.#device = device;
    this.#steps = steps;
    this.#layout = layout;
    this.#places = [...layout.places];
    this.#scratch = layout.scratch;
    let end = block(layout.size);
    const starts = manifest.constants.map(([, size]) => {
      const start = end;
      end += block(size);
      return start;
    });
    for (const [slot, number] of layout.constants) this.#places[slot] = starts[number];
    this.#flags = end;
    const size = end + block(4 * steps.length);
    if (size > Math.min(device.limits.maxBufferSize, device.limits.maxStorageBufferBindingSize)) {
      throw new PlicaError("no-memory", `There is not enough memory for the model: ${size} bytes.`);
    }
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    this.#memory = device.createBuffer({ size, usage });
    const copied = Math.max(4, ...steps.map((step) => (step.length === 3 ? words(step[2]) : 0)));
    this.#between = device.createBuffer({ size: copied, usage });
    manifest.constants.forEach(([start, bytes], number) => {
      this.#send(params.subarray(start, start + bytes), starts[number]);
    });
    this.#pipelines = new Map();
    device.pushErrorScope("validation");
    for (const part of text(code).split(SHADER).slice(1)) {
      const name = part.slice(0, part.indexOf("\n"));
      const module = device.createShaderModule({ code: part.slice(name.length) });
      const compute = { module, entryPoint: name };
      this.#pipelines.set(name, device.createComputePipeline({ layout: "auto", compute }));
    }
    const wrong = await device.popErrorScope();
    if (wrong) throw new PlicaError("toolchain", `The driver refuses a shader: ${wrong.message}`);
  }

  /** Bytes into the memory, in whole words. */
  #send(bytes, at) {
    const whole = new Uint8Array(words(bytes.length));
    whole.set(bytes);
    if (whole.length) this.#device.queue.writeBuffer(this.#memory, at, whole);
  }

  #encode(encoder, step, number) {
    if (step.length === 3) { // a buffer is not copied into itself
      const [source, target, size] = step;
      if (!size) return;
      encoder.copyBufferToBuffer(this.#memory, this.#places[source], this.#between, 0, words(size));
      encoder.copyBufferToBuffer(this.#between, 0, this.#memory, this.#places[target], words(size));
      return;
    }
    const [name, [items], , , slots, scratch] = step;
    const begins = [...slots.map((slot) => this.#places[slot]), ...this.#scratch.slice(0, scratch)];
    const given = Uint32Array.from([...begins.map((at) => at / 4), this.#flags / 4 + number, 0]);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
    const where = this.#device.createBuffer({ size: given.byteLength, usage });
    this.#device.queue.writeBuffer(where, 0, given);
    const pipeline = this.#pipelines.get(name);
    const entries = [this.#memory, where].map((buffer, binding) => ({ binding, resource: { buffer } }));
    const group = this.#device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const count = items > 1 ? Math.ceil(items / GROUP) : 1;
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(Math.min(count, ACROSS), Math.ceil(count / ACROSS));
    pass.end();
  }

  /** Run the model on arrays by name, or in order; gives `{data, shape, dtype}` by name. */
  async run(given = {}) {
    const taken = takenBy(this.inputs, given);
    const device = this.#device;
    this.#send(new Uint8Array(4 * this.#steps.length), this.#flags);
    taken.forEach((array, number) => {
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      this.#send(bytes, this.#places[this.#layout.inputs[number]]);
    });
    const encoder = device.createCommandEncoder();
    this.#steps.forEach((step, number) => this.#encode(encoder, step, number));
    const parts = this.outputs.map((port, at) => [this.#places[this.#layout.outputs[at]], port.bytes]);
    parts.push([this.#flags, 4 * this.#steps.length]);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const reads = parts.filter(([, size]) => size).map(([at, size]) => {
      const buffer = device.createBuffer({ size: words(size), usage });
      encoder.copyBufferToBuffer(this.#memory, at, buffer, 0, words(size));
      return buffer;
    });
    device.queue.submit([encoder.finish()]);
    const arrays = await Promise.all(reads.map(async (buffer) => {
      await buffer.mapAsync(GPUMapMode.READ);
      return buffer.getMappedRange().slice(0);
    }));
    const failed = new Int32Array(arrays.pop()).findIndex((each) => each !== 0);
    if (failed >= 0) throw outside(this.#sources[failed]);
    return Object.fromEntries(this.outputs.map((port) => {
      const bytes = port.bytes ? arrays.shift().slice(0, port.bytes) : new ArrayBuffer(0);
      const data = new (arrayOf(port.dtype))(bytes);
      return [port.name, { data, shape: port.shape, dtype: port.dtype }];
    }));
  }
}

async function bytesOf(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  const isPath = typeof source === "string" && !/^[a-z][a-z0-9+.-]+:/i.test(source);
  const inNode = globalThis.process?.versions?.node !== undefined;
  if (inNode && (isPath || (source instanceof URL && source.protocol === "file:"))) {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(source));
  }
  const answer = source instanceof Response ? source : await fetch(source);
  if (!answer.ok) throw damaged(`The artefact cannot be read: ${answer.status} ${answer.statusText}.`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** The model in an artefact: a URL, a path in Node, a response, or the bytes themselves; several
 *  threads run one that was compiled for `wasm:threads`. */
export async function load(source, { threads = 1 } = {}) {
  const members = await unpack(await bytesOf(source));
  const code = members.get("code/0.wasm");
  const params = members.get("params.bin") ?? new Uint8Array();
  if (!members.has("manifest.json")) throw damaged("The artefact has no manifest.");
  const manifest = JSON.parse(text(members.get("manifest.json")));
  const shaders = members.get("code/0.wgsl");
  if (shaders && manifest.device) return GpuModel.load(manifest, shaders, params);
  if (!code || !manifest.target?.triple?.startsWith("wasm32")) {
    const found = manifest.target?.triple ?? "nothing";
    throw new PlicaError("other-machine", `The artefact was made for ${found}, not for WebAssembly.`);
  }
  let module;
  try {
    module = await WebAssembly.compile(code);
  } catch (error) {
    throw new PlicaError("other-machine", `This engine cannot run the module: ${error.message}.`);
  }
  let memory;
  if (WebAssembly.Module.imports(module).some((each) => each.kind === "memory")) {
    const initial = Math.ceil((code.length + STACK) / PAGE) + 2;
    try {
      memory = new WebAssembly.Memory({ initial, maximum: LONGEST, shared: true });
      if (threads > 1 && globalThis.crossOriginIsolated === false) throw new Error("no isolation");
    } catch (error) {
      throw new PlicaError("other-machine", `Threads cannot share memory here: ${error.message}; ` +
        "a page is served with Cross-Origin-Opener-Policy and Cross-Origin-Embedder-Policy.");
    }
  } else if (threads > 1) {
    throw new PlicaError("unsupported", "The model was not compiled for threads: target wasm:threads.");
  }
  const instance = await WebAssembly.instantiate(module, imported(module, memory));
  const model = new Model(manifest, instance, params, memory);
  if (threads > 1) await model.share(module, threads);
  return model;
}
