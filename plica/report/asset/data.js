'use strict';
// Data: the packed views, small builders of elements, and numbers as people read them.

const $ = (query, at = document) => at.querySelector(query);
const $$ = (query, at = document) => [...at.querySelectorAll(query)];

function built(made, attributes, kids) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...kids.flat(3).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return made;
}
const h = (name, attributes, ...kids) => built(document.createElement(name), attributes, kids);
const SPACE = Object.assign(document.createElement('div'), {innerHTML: '<svg/>'})
  .firstChild.namespaceURI;
const s = (name, attributes, ...kids) =>
  built(document.createElementNS(SPACE, name), attributes, kids);

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

const count = (number) => Math.round(number).toLocaleString('en');
const brief = (number) => (number < 1e6 ? count(number) : `${(number / 1e6).toFixed(1)} M`);
const percent = (part) => part === null ? '–' : `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`;
function duration(seconds) {
  if (seconds === null || seconds === undefined) return '';
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toFixed(2)} ms`;
  return `${(seconds * 1e6).toFixed(1)} µs`;
}
function bytes(size) {
  for (const [unit, name] of [[2 ** 30, 'GB'], [2 ** 20, 'MB'], [2 ** 10, 'kB']]) {
    if (size >= unit) return `${Number((size / unit).toPrecision(3))} ${name}`;
  }
  return `${Math.round(size)} B`;
}

// What the machine needs at least for some work; its levels go from the nearest memory on.
function least(roof, operations, touched) {
  const [, speed] = roof.levels.find(([holds]) => holds === null || touched <= holds);
  return Math.max(operations / roof.gflops, touched / speed) / 1e9;
}
const roofOf = (view, operations, touched, seconds) =>
  view.roof && seconds ? Math.min(1, least(view.roof, operations, touched) / seconds) : null;

// What is selected and where the slider stands; whoever shows something is told of changes.
const state = {view: 0, step: 0, kernel: 0, launch: null, node: null, query: '', split: false,
  beside: 1};
const listeners = [];
const onChange = (listener) => listeners.push(listener);
function change(what) {
  Object.assign(state, what);
  listeners.forEach((listener) => listener(what));
}
// The selection as the fragment of an address, `#step=12&launch=3`, and back; what is no number of
// the page is left out.
const LINKED = ['view', 'kernel', 'launch', 'step'];
const linkOf = (of) => `#${LINKED.filter((name) => of[name] !== null)
  .map((name) => `${name}=${of[name]}`).join('&')}`;
const linked = (fragment) => Object.fromEntries([...new URLSearchParams(fragment.slice(1))]
  .filter(([name, value]) => LINKED.includes(name) && /^\d{1,9}$/.test(value))
  .map(([name, value]) => [name, Number(value)]));
let views = [];
let live = '';
const view = () => views[state.view];
const films = () => (view().kernels ?? []);
const frames = () => view().graph?.frames.length ?? 0;
const film = () => films()[state.kernel]?.film ?? [];
// Positions of the slider: the graph as read, each step of it, then the frames of one kernel.
const graphPositions = () => (view().graph ? frames() + 1 : 0);
const positions = () => graphPositions() + film().length;
const inGraph = () => state.step < graphPositions();
const kernelFrame = () => Math.max(0, state.step - graphPositions());
