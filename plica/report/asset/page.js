// The page: header, slider, stage, inspector, panels, keys; all show one selection.

let panes = [];
let playing = null;

const rangeOf = (pass, at) => (at ? pass[at - 1][2] : 0);
function passOf(of, step) { // which pass a step of the graph belongs to
  return step ? (of.graph.passes ?? []).find(([, , end]) => step <= end) : null;
}

function stepWords() {
  const of = view(), at = state.step;
  if (!inGraph()) {
    const [level, title] = film()[kernelFrame()];
    const name = of.kind === 'model' ? ` of ${films()[state.kernel].name}` : '';
    return [h('b', {}, title), ` ${LEVELS[level]}${name}`];
  }
  if (!at) return [h('b', {}, 'as read')];
  const [name, isPass, contract, gone, set, made] = of.graph.frames[at - 1];
  const pass = passOf(of, at);
  const same = !gone.length && !made.length && !set.length;
  const rest = [pass && pass[0] !== name ? `pass ${pass[0]}` : null, isPass ? 'pass' : 'rule',
    contract, same ? 'only constants or their order changed'
      : `${gone.length} nodes went, ${made.length} came`].filter(Boolean).join(' · ');
  return [h('b', {}, name), ' ', rest, pass ? h('span', {class: 'soft'}, ` ${pass[1]}`) : null];
}

function strip() { // the whole derivation in one line of colours
  const of = view(), whole = Math.max(1, positions() - 1), parts = [];
  const add = (from, to, kind, title) => parts.push(s('rect', {class: kind, x: from, y: 0,
    width: Math.max(to - from, 0.2), height: 8}, s('title', {}, title)));
  if (of.graph) {
    (of.graph.passes ?? []).forEach(([name, , end], at, all) => {
      const start = rangeOf(all, at);
      if (end > start) add(start, end, `graph${at % 2}`, `${name}: ${end - start} steps`);
    });
  }
  film().forEach(([level, title], at) => {
    const start = graphPositions() + at - (of.graph ? 1 : 0);
    add(start, start + 1, level, `${LEVELS[level]}: ${title}`);
  });
  return s('svg', {class: 'strip', viewBox: `0 0 ${whole} 8`, preserveAspectRatio: 'none'}, parts);
}

function go(step) { change({step: Math.min(Math.max(0, step), positions() - 1)}); }
function goPass(by) {
  const ends = [0, ...(view().graph?.passes ?? []).map(([, , end]) => end)];
  film().forEach(([level], at) => {
    if (!at || level !== film()[at - 1][0]) ends.push(graphPositions() + at);
  });
  ends.push(positions() - 1);
  const found = by > 0 ? ends.find((end) => end > state.step)
    : [...ends].reverse().find((end) => end < state.step);
  if (found !== undefined) go(found);
}
function play() {
  if (playing) { clearInterval(playing); playing = null; } else {
    playing = setInterval(() => (state.step + 1 < positions() ? go(state.step + 1) : play()), 350);
  }
  $('#play').textContent = playing ? '❚❚' : '▶';
}

function selectLaunch(at) {
  const launch = view().launches[at];
  const frame = inGraph() ? null : kernelFrame();
  change({launch: at, node: launch.node, kernel: launch.kernel});
  if (frame !== null) go(graphPositions() + Math.min(frame, film().length - 1));
  if (inGraph() && launch.node !== null) {
    const sources = launchSources(view(), launch);
    const shown = [...graphAt(view().graph, state.step).keys()]
      .find((node) => node === launch.node || meets(view(), node, sources));
    if (shown !== undefined) focusNode(shown);
  }
}
function selectNode(node) {
  const launch = launchesOf(view(), node)[0] ?? null;
  change({node, launch, kernel: launch === null ? state.kernel : view().launches[launch].kernel});
}
function focusNode(node) { panes.forEach((pane) => pane.graph?.has(node) && pane.centre(node)); }

// --- the stage: graphs or loops -----------------------------------------------------------------

function showStage() {
  const of = view(), stage = $('#stage');
  if (!inGraph()) {
    panes = [];
    const at = kernelFrame();
    const shown = [nestPane(of, film(), at, of.kind === 'trace' ? films()[state.kernel].name : '')];
    if (of.kind === 'trace' && films().length > 1) {
      const other = films()[state.beside];
      shown.push(nestPane(of, other.film, matching(of, at, other), other.name));
    } else if (state.split && at) shown.unshift(nestPane(of, film(), at - 1, 'before'));
    stage.replaceChildren(...shown);
    return;
  }
  const wanted = state.split && state.step ? ['before', 'after'] : ['the graph'];
  if (panes.length !== wanted.length) {
    panes = wanted.map((label) => new GraphPane(label, selectNode));
    stage.replaceChildren(...panes.map((pane) => pane.element));
  }
  const frame = state.step ? of.graph.frames[state.step - 1] : null;
  const made = new Map((frame?.[5] ?? []).map((node) => [node, 'made']));
  const gone = new Map((frame?.[3] ?? []).map((node) => [node, 'gone']));
  if (wanted.length === 2) {
    panes[0].show(of, graphAt(of.graph, state.step - 1), {marks: gone, caption: 'before'});
    panes[1].show(of, graphAt(of.graph, state.step), {marks: made, caption: 'after'});
  } else panes[0].show(of, graphAt(of.graph, state.step), {marks: made});
  const many = (frame?.[4].length ?? 0) > 40; // then there is no one place to look at
  const look = frame?.[5][0] ?? frame?.[4][0]?.[0];
  if (many) panes.forEach((pane) => pane.fit(true));
  else if (look !== undefined) panes.at(-1).centre(look);
  if (!many && panes.length === 2 && frame?.[3].length) panes[0].centre(frame[3][0]);
  showSelection();
}

// The frame of another trace that stands where this one does: steps that are in both are paired.
function matching(of, at, other) {
  const pairs = of.pairs?.[`${Math.min(state.kernel, state.beside)},${
    Math.max(state.kernel, state.beside)}`] ?? [];
  const mine = state.kernel <= state.beside ? 0 : 1;
  let found = 0;
  for (const pair of pairs) if (pair[mine] !== null && pair[1 - mine] !== null &&
    pair[mine] < at) found = pair[1 - mine] + 1;
  return Math.min(at >= film().length - 1 ? other.film.length - 1 : found, other.film.length - 1);
}

function showSelection() {
  const of = view();
  $$('.on').forEach((each) => each.classList.remove('on'));
  if (state.launch !== null) {
    $$(`[data-launch="${state.launch}"]`).forEach((each) => each.classList.add('on'));
  }
  if (of.graph) {
    const sources = state.launch !== null && of.launches
      ? launchSources(of, of.launches[state.launch])
      : new Set(state.node === null ? [] : sourcesOf(of, state.node));
    panes.forEach((pane) => {
      pane.mark('kin', (node) => meets(of, node, sources));
      pane.mark('on', (node) => node === state.node);
      pane.mark('hit', (node) => state.query && hits(of, node, state.query));
    });
  }
  $$(`tr[data-frame="${kernelFrame()}"]`).forEach((each) =>
    each.classList.toggle('on', !inGraph()));
}

// --- the inspector: operator <-> kernel <-> loops <-> assembly ------------------------------------

let tab = 'steps';
function showInspector() {
  const of = view(), parts = [];
  if (state.node !== null && of.graph) {
    const [label, note, kind, attributes] = of.graph.nodes[state.node];
    parts.push(h('h3', {}, named(of, state.node)),
      h('p', {}, h('code', {}, label), ' ', note, attributes ? h('div', {class: 'soft'}, attributes)
        : null, h('div', {class: 'soft'}, kind)), why(of, state.node));
    if (graphAt(of.graph, 0).has(state.node)) parts.push(became(of, state.node));
  }
  const launch = state.launch === null ? null : of.launches?.[state.launch];
  const kernel = films()[state.kernel];
  if (launch) {
    parts.push(h('h3', {id: 'kernel-title'}, launch.title),
      h('p', {}, `${duration(launch.seconds)} a call, ${percent(launch.roof)} of the roof, `,
        `${(launch.operations / launch.seconds / 1e9).toFixed(1)} GFLOP/s; gives `,
        h('code', {}, launch.shape.join(' × ') || 'a scalar')),
      h('p', {id: 'sources'}, 'Operators of the model: ',
        sourceLinks(of, [...launchSources(of, launch)])));
  }
  if (of.kind !== 'model' && films().length > 1) {
    const choice = (key, label) => h('label', {}, `${label} `, h('select', {'data-choice': key,
      onchange: (event) => { change({[key]: Number(event.target.value)}); go(state.step); }},
    films().map((each, at) => h('option', {value: at, selected: at === state[key] ? '' : null},
      each.name))), ' ');
    parts.push(h('p', {}, choice('kernel', of.kind === 'trace' ? 'left' : 'kernel'),
      of.kind === 'trace' ? choice('beside', 'right') : null));
  }
  if (kernel) {
    const tabs = ['steps', 'loops', ...(kernel.trace ? ['trace'] : []),
      ...(of.assembly?.[kernel.name] ? ['assembly'] : []), ...(hunksOf(of) ? ['difference'] : [])];
    if (!tabs.includes(tab)) [tab] = tabs;
    parts.push(h('h3', {}, h('code', {class: 'name'}, kernel.name)),
      h('div', {class: 'tabs', role: 'tablist'}, tabs.map((name) => h('button', {role: 'tab',
        'aria-selected': name === tab, 'data-tab': name,
        onclick: () => { tab = name; showInspector(); }}, name))));
    const work = launch ? [launch.operations, launch.bytes] : of.work;
    parts.push({
      steps: () => h('div', {class: 'scroll'}, stepTable(of, kernel.film, kernelFrame(),
        (at) => go(graphPositions() + at), work)),
      loops: () => nestPane(of, kernel.film, inGraph() ? kernel.film.length - 1 : kernelFrame()),
      trace: () => [h('pre', {class: 'code', id: 'trace'}, kernel.trace), replayBox(kernel)],
      assembly: () => h('pre', {class: 'code', id: 'assembly'}, of.assembly[kernel.name]),
      difference: () => h('div', {}, hunksOf(of).map(hunkView)),
    }[tab]());
  }
  if (!parts.length) parts.push(h('p', {class: 'soft'}, 'Select a node or a kernel.'));
  $('#inspector').replaceChildren(...parts.flat());
  showSelection();
}
const hunksOf = (of) => of.hunks?.[`${state.kernel},${state.beside}`];
const hunkView = ({edits, effect, before, after}, at) => h('details', {open: at < 3},
  h('summary', {}, `hunk ${at}`, before && after ? ` ${count(before)} → ${count(after)} cycles` : ''),
  h('pre', {class: 'code'}, edits.map((line) => row(line[0], line.slice(1)))),
  h('pre', {class: 'code'}, effect.filter((line) => !/^(---|\+\+\+)/.test(line)).map((line) =>
    row('+-'.includes(line[0]) ? line[0] : ' ', line.slice(1)))));

// --- panels -----------------------------------------------------------------------------------------

const shortest = (of) => of.launches.map((launch, at) => [launch, at])
  .sort(([a], [b]) => b.seconds - a.seconds);

function headline(of) {
  const whole = of.launches.reduce((sum, each) => sum + each.seconds, 0) || 1;
  const top = shortest(of).slice(0, 3);
  const part = top.reduce((sum, [each]) => sum + each.seconds, 0) / whole;
  const roof = of.launches.reduce((sum, each) => sum + each.roof * each.seconds, 0) / whole;
  return h('p', {class: 'headline'}, `${top.length} of ${of.launches.length} kernels take `,
    h('b', {}, percent(part)), ' of the time', of.launches.some((each) => each.roof === null)
      ? '; the machine was busy, so no share of the roof is told.'
      : ['; all of them together run at ', h('b', {}, percent(roof)), ' of the roof.']);
}

function kernelTable(of) {
  const whole = of.launches.reduce((sum, each) => sum + each.seconds, 0) || 1;
  const most = Math.max(...of.launches.map((each) => each.seconds)) / whole;
  const heads = [['#', 1], ['kernel', 0], ['share', 1], ['time', 1], ['±', 1], ['GFLOP/s', 1],
    ['FLOP/byte', 1], ['roof', 1]];
  const table = h('table', {class: 'sort kernels'},
    h('thead', {}, h('tr', {}, heads.map(([word, number], at) => h('th', {class: number ? 'n' : null,
      onclick: () => sorted(table, at)}, word)))),
    h('tbody', {}, shortest(of).map(([each, at]) => h('tr', {'data-launch': at, tabindex: 0,
      onclick: () => selectLaunch(at),
      onkeydown: (event) => event.key === 'Enter' && selectLaunch(at)},
    h('td', {class: 'n'}, at),
    h('td', {}, h('div', {}, each.title), h('div', {class: 'soft'}, each.nodes.join(', ')),
      each.rules.length ? h('div', {class: 'soft rules'}, `rules: ${each.rules.join(', ')}`) : null),
    h('td', {class: 'n', 'data-key': each.seconds}, percent(each.seconds / whole), ' ',
      h('span', {class: 'bar', style: `width:${Math.max(1, 70 * each.seconds / whole / most)}px`})),
    h('td', {class: 'n', 'data-key': each.seconds}, duration(each.seconds)),
    h('td', {class: 'n', 'data-key': each.spread}, percent(each.spread)),
    h('td', {class: 'n'}, (each.operations / (each.seconds || 1) / 1e9).toFixed(2)),
    h('td', {class: 'n'}, (each.operations / (each.bytes || 1)).toFixed(2)),
    h('td', {class: 'n', 'data-key': each.roof}, percent(each.roof))))));
  return table;
}
function sorted(table, column) {
  const body = table.tBodies[0], up = table.dataset.up !== `${column}`;
  table.dataset.up = up ? column : '';
  const key = (tr) => tr.cells[column].dataset.key ?? tr.cells[column].textContent;
  body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) *
    key(a).localeCompare(key(b), undefined, {numeric: true})));
}

function askPanel(of) {
  const answer = h('div', {id: 'answer'});
  const box = h('input', {id: 'question', list: 'questions', 'aria-label': 'a question',
    placeholder: 'why NODE · became NODE · impact RULE', autocomplete: 'off'});
  const ask = () => answer.replaceChildren(asked(of, box.value));
  box.addEventListener('change', ask);
  const used = new Map();
  of.graph.frames.forEach(([name]) => used.set(name, (used.get(name) ?? 0) + 1));
  return h('div', {}, box, h('datalist', {id: 'questions'}, questions(of).map((each) =>
    h('option', {value: each}))), answer, h('p', {}, 'Rules and passes, most used first: ',
    [...used].sort(([, a], [, b]) => b - a).map(([name, times]) => [h('button', {class: 'link',
      onclick: () => { box.value = `impact ${name}`; ask(); }}, name), ` ${times} `])));
}

const plainTable = (heads, rows) => h('table', {}, h('thead', {}, h('tr', {}, heads.map((word) =>
  h('th', {}, word)))), h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell) =>
  h('td', {}, h('span', {class: 'cell'}, cell)))))));

function fusionTable(of) {
  return h('table', {}, h('thead', {}, h('tr', {}, ['from', 'to', 'one kernel', 'why'].map((word) =>
    h('th', {}, word)))), h('tbody', {}, of.fusion.map(([from, to, fused, reason]) => h('tr', {},
    h('td', {}, from), h('td', {}, to), h('td', {class: fused ? 'yes' : 'no'}, fused ? 'yes' : 'no'),
    h('td', {}, reason)))));
}

function tuningPanel(of) {
  return h('div', {}, of.choices.length ? h('table', {}, h('thead', {}, h('tr', {},
    ['kernel', 'schedule', 'why'].map((word) => h('th', {}, word)))), h('tbody', {},
    of.choices.map((cells) => h('tr', {}, cells.map((cell) => h('td', {}, cell)))))) : null,
  of.curves.map((each) => h('div', {}, h('h3', {}, each.name), curve(each))));
}

// --- futures: the same derivation, gone on otherwise from one step ----------------------------------

function futurePanel(of) {
  const shown = h('div', {id: 'future'});
  const pick = (chosen) => {
    shown.replaceChildren(...compared(of, chosen));
    [...list.children].forEach((each, at) =>
      each.setAttribute('aria-selected', of.futures[at] === chosen));
  };
  const list = h('div', {class: 'tabs'}, of.futures.map((each) => h('button', {
    'data-future': each.step, onclick: () => pick(each)},
  `step ${each.step}: ${each.title}`)));
  const said = h('p', {class: 'soft'}, of.futures.length ? 'What would have become of the model?'
    : 'This page holds no futures; plica explore MODEL --fork STEP puts some into it.');
  const parts = [said, list];
  if (live) parts.push(h('p', {}, h('button', {id: 'fork', onclick: () => fork(of, shown)},
    'Fork here: go on without this step')));
  if (of.futures.length) setTimeout(() => shown.childElementCount || pick(of.futures[0]));
  return h('div', {}, ...parts, shown);
}
function compared(of, future) {
  if (future.refused) return [h('p', {}, `This future ends: ${future.refused}`)];
  const ours = graphAt(of.graph, frames());
  const theirs = graphAt(future.graph, future.graph.frames.length);
  const key = (graph, node) => graph.nodes[node].join('|');
  const only = (graph, state_, other, otherState) => {
    const left = new Map();
    otherState.forEach((_, node) => left.set(key(other, node), (left.get(key(other, node)) ?? 0) + 1));
    const found = new Map();
    state_.forEach((_, node) => {
      const has = left.get(key(graph, node)) ?? 0;
      if (has) left.set(key(graph, node), has - 1); else found.set(node, 'made');
    });
    return found;
  };
  const mine = only(of.graph, ours, future.graph, theirs);
  const their = only(future.graph, theirs, of.graph, ours);
  const one = new GraphPane('as it was'), other = new GraphPane('without it');
  setTimeout(() => {
    one.show(of, ours, {marks: mine, caption: `as it was: ${mine.size} nodes of its own`});
    other.show(future, theirs, {marks: their, caption: `${future.title}: ${their.size} of its own`});
    if (mine.size) one.centre([...mine.keys()][0]);
    if (their.size) other.centre([...their.keys()][0]);
  });
  const rows = of.facts.map(([name, value], at) => [name, value, future.facts[at]?.[1] ?? '']);
  return [h('table', {class: 'narrow'}, h('thead', {}, h('tr', {}, ['', 'as it was', future.title]
    .map((word) => h('th', {}, word)))), h('tbody', {}, rows.map((cells) =>
    h('tr', {class: cells[1] === cells[2] ? 'same' : null}, cells.map((cell) => h('td', {}, cell)))))),
  h('div', {class: 'stage futures'}, one.element, other.element)];
}
async function told(what, body) {
  const answer = await fetch(what, {method: 'POST', headers: {'X-Plica': live},
    body: JSON.stringify({view: state.view, ...body})});
  return answer.json();
}
async function fork(of, shown) {
  if (!inGraph() || !state.step) {
    shown.replaceChildren(h('p', {}, 'Move the slider to the step of the graph to go on without.'));
    return;
  }
  shown.replaceChildren(h('p', {}, 'Compiling the other future …'));
  const future = await told('fork', {step: state.step});
  of.futures.push(future);
  shown.replaceChildren(...compared(of, future));
}
function replayBox(kernel) { // a schedule edited on the page, replayed by the server
  if (!live) return null;
  const text = h('textarea', {rows: 16, spellcheck: 'false', 'aria-label': 'a trace',
    value: kernel.trace}), shown = h('div');
  return h('details', {}, h('summary', {}, 'Fork the schedule: edit the trace and replay it'), text,
    h('button', {onclick: async () => {
      shown.replaceChildren('Replaying …');
      const found = await told('replay', {kernel: state.kernel, trace: text.value});
      if (found.refused) { shown.replaceChildren(h('p', {class: 'no'}, found.refused)); return; }
      const last = found.film.length - 1;
      shown.replaceChildren(nestPane(found, found.film, last, 'forked'),
        stepTable({...view(), lines: found.lines}, found.film, last, () => {}, found.work));
    }}, 'Replay and time'), shown);
}

let panel = 'kernels';
function showPanels() {
  const of = view();
  const all = of.kind === 'model' ? {
    kernels: () => [headline(of), h('div', {class: 'scroll'}, kernelTable(of)),
      of.passedOver.length ? h('details', {}, h('summary', {}, 'Schedules passed over'),
        h('ul', {}, of.passedOver.map((each) => h('li', {}, each)))) : null],
    roofline: () => roofline(of, selectLaunch),
    memory: () => memory(of, selectLaunch),
    fusion: () => h('div', {class: 'scroll'}, fusionTable(of)),
    ...(of.curves.length || of.choices.length ? {tuning: () => tuningPanel(of)} : {}),
    ask: () => askPanel(of),
    futures: () => futurePanel(of),
  } : of.kind === 'artefact' ? {
    stages: () => h('div', {class: 'scroll'}, plainTable(['stage', 'steps', 'from', 'to'], of.stages)),
    rules: () => h('div', {class: 'scroll'}, plainTable(['rule', 'kind', 'contract', 'used'], of.rules)),
  } : of.kind === 'mesh' ? {
    plan: () => plainTable(['step'], of.plan),
    holds: () => h('div', {class: 'scroll'},
      plainTable(['value', 'of them', 'whole', 'each device', ...of.axes], of.held)),
    blocks: () => h('div', {class: 'scroll'},
      plainTable(['device', ...of.held.map(([name]) => name)], of.blocks)),
    sends: () => plainTable(['collective', 'axis', 'times', 'of each device', 'bytes'], of.sent),
  } : {};
  const names = Object.keys(all);
  if (!names.length) { $('#panels').replaceChildren(); return; }
  if (!names.includes(panel)) [panel] = names;
  $('#panels').replaceChildren(h('div', {class: 'tabs', role: 'tablist'}, names.map((name) =>
    h('button', {role: 'tab', 'data-panel': name, 'aria-selected': name === panel,
      onclick: () => { panel = name; showPanels(); }}, name))),
  h('div', {id: 'panel'}, all[panel]()));
  showSelection();
}

// --- search -----------------------------------------------------------------------------------------

const hits = (of, node, query) => [...of.graph.nodes[node], of.graph.names?.[node] ?? '']
  .join(' ').toLowerCase().includes(query.toLowerCase());
function search(query) {
  const of = view(), found = [];
  change({query});
  if (query && of.graph) {
    for (const node of graphAt(of.graph, Math.min(state.step, frames())).keys()) {
      const [label, type] = of.graph.nodes[node], name = named(of, node);
      if (hits(of, node, query)) found.push(['node', name, name === label ? type : `${label} ${type}`,
        () => { if (!inGraph()) go(frames()); selectNode(node); focusNode(node); }]);
    }
  }
  if (query) {
    (of.launches ?? []).forEach((each, at) => {
      if (`${each.title} ${each.name}`.toLowerCase().includes(query.toLowerCase())) {
        found.push(['kernel', each.title, duration(each.seconds), () => selectLaunch(at)]);
      }
    });
    const rules = new Map();
    (of.graph?.frames ?? []).forEach(([name], at) => rules.has(name) || rules.set(name, at + 1));
    rules.forEach((step, name) => {
      if (name.includes(query)) found.push(['rule', name, `step ${step}`, () => go(step)]);
    });
  }
  $('#found').replaceChildren(...found.slice(0, 14).map(([kind, name, note, pick]) =>
    h('button', {class: 'found', onclick: () => { pick(); $('#found').replaceChildren(); }},
      h('small', {}, kind), ` ${name} `, h('small', {}, note))),
  found.length > 14 ? h('p', {class: 'soft'}, `and ${found.length - 14} more`) : '');
}

// --- the whole ----------------------------------------------------------------------------------------

const KEYS = {
  ArrowLeft: ['a step back', (event) => (event.shiftKey ? goPass(-1) : go(state.step - 1))],
  ArrowRight: ['a step on; with Shift to the next pass',
    (event) => (event.shiftKey ? goPass(1) : go(state.step + 1))],
  Home: ['to the model as it was read', () => go(0)],
  End: ['to the last step of the kernel', () => go(positions() - 1)],
  g: ['to the last graph', () => view().graph && go(frames())],
  l: ['to the loops of the selected kernel', () => go(graphPositions() + film().length - 1)],
  j: ['the next kernel by time', () => nextKernel(1)],
  k: ['the kernel before', () => nextKernel(-1)],
  b: ['before and after side by side', () => { panes = []; change({split: !state.split,
    step: state.step}); }],
  f: ['fit the graph', () => panes.forEach((pane) => pane.fit())],
  p: ['play', () => play()],
  '/': ['search', () => $('#search').focus()],
  '?': ['these keys', () => $('#help').showModal()],
  Escape: ['select nothing', () => { search(''); change({node: null, launch: null}); }],
};
function nextKernel(by) {
  if (!view().launches) return;
  const order = shortest(view()).map(([, at]) => at);
  const at = order.indexOf(state.launch);
  selectLaunch(order[(at + by + order.length) % order.length]);
}

function showView() {
  const of = view();
  panes = [];
  Object.assign(state, {step: 0, node: null, launch: null, kernel: 0, query: '', beside: 1});
  if (of.launches?.length) {
    [[, state.launch]] = shortest(of);
    state.kernel = of.launches[state.launch].kernel;
  }
  state.step = of.graph ? frames() : film().length - 1;
  $('#facts').replaceChildren(...of.facts.map(([name, value]) =>
    h('div', {}, h('b', {}, value), h('span', {}, name))));
  $('#stage').replaceChildren();
  showPanels();
  change({step: state.step, kernel: state.kernel, launch: state.launch});
}

function showSlider() {
  const slider = $('#slider');
  slider.max = positions() - 1;
  slider.value = state.step;
  $('#where').replaceChildren(h('span', {class: 'n'}, `${state.step} / ${positions() - 1} `),
    ...stepWords().flat());
}

function buildPage() {
  const button = (id, text, title, act) => h('button', {id, title, 'aria-label': title,
    onclick: act}, text);
  $('#app').append(
    h('header', {}, h('h1', {}, 'plica ', h('small', {}, 'explore')),
      views.length > 1 ? h('select', {id: 'views', 'aria-label': 'which model',
        onchange: (event) => { change({view: Number(event.target.value)}); showView(); }},
      views.map((each, at) => h('option', {value: at}, each.name))) : h('b', {}, views[0].name),
      h('div', {class: 'search'}, h('input', {id: 'search', type: 'search', placeholder: 'search ( / )',
        'aria-label': 'search', autocomplete: 'off', oninput: (event) => search(event.target.value),
        onkeydown: (event) => {
          if (event.key === 'Enter') $('#found button')?.click();
          if (event.key === 'Escape') { event.target.value = ''; search(''); event.target.blur(); }
        }}), h('div', {id: 'found'})),
      button('keys', '?', 'keys', () => $('#help').showModal())),
    h('div', {id: 'facts', class: 'facts'}),
    h('div', {class: 'timeline'},
      h('div', {class: 'buttons'}, button('back', '◀', 'a step back', () => go(state.step - 1)),
        button('play', '▶', 'play', play), button('on', '▶▏', 'a step on', () => go(state.step + 1)),
        button('split', '◫', 'before and after', () => KEYS.b[1]()),
        button('fit', '⤢', 'fit the graph', () => KEYS.f[1]()),
        button('to-graph', 'graph', 'the last graph', () => KEYS.g[1]()),
        button('to-loops', 'loops', 'the loops of the selected kernel', () => KEYS.l[1]())),
      h('div', {id: 'strip'}),
      h('input', {id: 'slider', type: 'range', min: 0, 'aria-label': 'step of the derivation',
        oninput: (event) => go(Number(event.target.value))}),
      h('p', {id: 'where', 'aria-live': 'polite'})),
    h('div', {class: 'work'}, h('div', {id: 'stage', class: 'stage'}),
      h('aside', {id: 'inspector'})),
    h('section', {id: 'panels'}),
    h('dialog', {id: 'help'}, h('h3', {}, 'Keys'), h('table', {}, Object.entries(KEYS).map(
      ([key, [words]]) => h('tr', {}, h('td', {}, h('kbd', {}, key)), h('td', {}, words)))),
    h('button', {onclick: () => $('#help').close()}, 'Close')));
  window.addEventListener('resize', () => panes.forEach((pane) => pane.fit(true)));
  document.addEventListener('keydown', (event) => {
    if (event.target.closest('input:not([type=range]), textarea, select, dialog[open]')) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const found = KEYS[event.key];
    if (found) { event.preventDefault(); found[1](event); }
  });
}

onChange((what) => {
  if ('kernel' in what) {
    $('#strip').replaceChildren(strip());
    state.step = Math.min(state.step, positions() - 1);
  }
  if ('step' in what || 'kernel' in what) showSlider();
  if ('step' in what) showStage();
  if ('launch' in what || 'node' in what || 'kernel' in what || ('step' in what && !inGraph())) {
    showInspector();
  }
  showSelection();
});

// The address follows the selection, and the selection an address that is opened or edited. A page
// in a frame of a notebook has no address of its own.
let addressing = null;
onChange(() => {
  clearTimeout(addressing);
  addressing = setTimeout(() => location.protocol === 'about:'
    || history.replaceState(null, '', linkOf(state)), 200);
});
function follow() {
  const asked = linked(location.hash);
  if (views[asked.view] && asked.view !== state.view) {
    change({view: asked.view});
    $('#views').value = asked.view;
    showView();
  }
  if (view().launches?.[asked.launch]) selectLaunch(asked.launch);
  else if (films()[asked.kernel]) change({kernel: asked.kernel});
  if ('step' in asked) go(asked.step);
}
window.addEventListener('hashchange', follow);

async function begin() {
  ({views, live} = await unpacked($('#data').textContent));
  buildPage();
  showView();
  follow();
  document.body.dataset.ready = 'yes';
}
begin();
