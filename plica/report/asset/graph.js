// Graphs: the film's state at a step, a layered layout, and a pane with zoom, pan and selection.

const KEEP = 32; // frames between two kept states

function graphAt(of, step) {
  of.kept ??= [new Map(of.start.map(([node, reads]) => [node, reads]))];
  const from = Math.min(Math.floor(step / KEEP), of.kept.length - 1);
  let now = new Map(of.kept[from]);
  for (let at = from * KEEP; at < step; at += 1) {
    const [, , , gone, set] = of.frames[at];
    gone.forEach((node) => now.delete(node));
    set.forEach(([node, reads]) => now.set(node, reads));
    if ((at + 1) % KEEP === 0 && of.kept.length === (at + 1) / KEEP) of.kept.push(new Map(now));
  }
  return now;
}

const WIDE = 176, HIGH = 36, GAP_X = 22, GAP_Y = 26;

// Nodes in rows, values above their uses; in a row by the middle of what they are joined to.
function layout(graph, isInput) {
  const users = new Map([...graph.keys()].map((node) => [node, []]));
  graph.forEach((reads, node) => reads.forEach((each) => users.get(each)?.push(node)));
  const rank = new Map(), waiting = new Map();
  let ready = [];
  graph.forEach((reads, node) => {
    const known = reads.filter((each) => graph.has(each));
    waiting.set(node, new Set(known).size);
    if (!known.length) { rank.set(node, 0); ready.push(node); }
  });
  const order = [];
  while (ready.length) {
    const node = ready.pop();
    order.push(node);
    for (const user of new Set(users.get(node))) {
      rank.set(user, Math.max(rank.get(user) ?? 0, rank.get(node) + 1));
      waiting.set(user, waiting.get(user) - 1);
      if (!waiting.get(user)) ready.push(user);
    }
  }
  const depends = new Set(); // on an input of the model
  for (const node of order) {
    if (isInput(node) || graph.get(node).some((each) => depends.has(each))) depends.add(node);
  }
  for (const node of [...order].reverse()) { // what is made of constants stands next to its use
    const below = users.get(node).map((user) => rank.get(user));
    if (!depends.has(node) && below.length) rank.set(node, Math.min(...below) - 1);
  }
  const top = Math.min(0, ...rank.values());
  rank.forEach((at, node) => rank.set(node, at - top));
  const rows = [];
  order.forEach((node) => (rows[rank.get(node)] ??= []).push(node));
  for (let at = 0; at < rows.length; at += 1) rows[at] ??= [];
  const x = new Map();
  rows.forEach((row) => row.forEach((node, at) => x.set(node, at - (row.length - 1) / 2)));
  const middle = (node, near) => {
    const found = near.filter((each) => x.has(each)).map((each) => x.get(each));
    return found.length ? found.reduce((a, b) => a + b) / found.length : x.get(node);
  };
  for (let turn = 0; turn < 6; turn += 1) {
    const down = turn % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const wanted = new Map(row.map((node) =>
        [node, middle(node, down ? graph.get(node) : users.get(node))]));
      row.sort((a, b) => wanted.get(a) - wanted.get(b) || a - b);
      let free = -Infinity;
      const put = row.map((node) => (free = Math.max(free + 1, wanted.get(node))));
      const shift = row.reduce((sum, node, at) => sum + wanted.get(node) - put[at], 0) /
        (row.length || 1);
      row.forEach((node, at) => x.set(node, put[at] + shift));
    }
  }
  const place = new Map();
  const left = Math.min(0, ...x.values());
  x.forEach((at, node) => place.set(node, [(at - left) * (WIDE + GAP_X), rank.get(node) *
    (HIGH + GAP_Y)]));
  const width = Math.max(...[...place.values()].map(([px]) => px), 0) + WIDE;
  return {place, width, height: Math.max(rows.length, 1) * (HIGH + GAP_Y) - GAP_Y};
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const named = (of, node) => of.graph.names?.[node] ?? of.graph.nodes[node][0];

class GraphPane {
  constructor(label, choose) {
    this.choose = choose;
    this.stage = s('g');
    this.svg = s('svg', {class: 'graph', tabindex: 0, role: 'img', 'aria-label': label}, this.stage);
    this.caption = h('figcaption', {}, label);
    this.element = h('figure', {class: 'pane'}, this.caption, this.svg);
    this.at = {x: 0, y: 0, zoom: 1};
    this.held = new Map();
    this.watch();
  }

  watch() {
    this.svg.addEventListener('wheel', (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 400), event.clientX - box.x, event.clientY - box.y);
    }, {passive: false});
    this.svg.addEventListener('pointerdown', (event) => {
      this.held.set(event.pointerId, [event.clientX, event.clientY]);
      this.moved = 0;
    });
    this.svg.addEventListener('pointermove', (event) => {
      const old = this.held.get(event.pointerId);
      if (!old) return;
      const now = [event.clientX, event.clientY];
      const other = [...this.held].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
        const box = this.svg.getBoundingClientRect();
        this.zoom(far(now, other) / far(old, other), (now[0] + other[0]) / 2 - box.x,
          (now[1] + other[1]) / 2 - box.y);
      } else {
        this.at.x += now[0] - old[0];
        this.at.y += now[1] - old[1];
        this.move();
      }
      this.moved += Math.abs(now[0] - old[0]) + Math.abs(now[1] - old[1]);
      if (this.moved > 4 && !this.svg.hasPointerCapture(event.pointerId)) {
        this.svg.setPointerCapture(event.pointerId);
      }
      this.held.set(event.pointerId, now);
    });
    const release = (event) => this.held.delete(event.pointerId);
    this.svg.addEventListener('pointerup', release);
    this.svg.addEventListener('pointercancel', release);
    this.svg.addEventListener('click', (event) => {
      const box = event.target.closest('[data-node]');
      if (box && !(this.moved > 4)) this.choose?.(Number(box.dataset.node));
    });
  }

  move() {
    const {x, y, zoom} = this.at;
    this.stage.setAttribute('transform', `translate(${x} ${y}) scale(${zoom})`);
  }

  zoom(by, x, y) {
    const zoom = Math.min(4, Math.max(0.02, this.at.zoom * by));
    by = zoom / this.at.zoom;
    this.at = {x: x - (x - this.at.x) * by, y: y - (y - this.at.y) * by, zoom};
    this.move();
  }

  fit(readable = false) {
    const box = this.svg.getBoundingClientRect();
    if (!this.laid || !box.width) return;
    const {width, height} = this.laid;
    let zoom = Math.min(1.2, (box.width - 24) / width, (box.height - 24) / height);
    if (readable) zoom = Math.max(zoom, Math.min(0.9, (box.width - 24) / width), 0.45);
    let x = (box.width - width * zoom) / 2;
    if (width * zoom > box.width) { // too wide to read: begin where the inputs are
      const inputs = [...this.graph.keys()].filter((node) => this.of.graph.nodes[node][2] === 'input');
      const [left] = this.laid.place.get(inputs[0] ?? [...this.graph.keys()][0]) ?? [0];
      x = box.width / 2 - (left + WIDE / 2) * zoom;
    }
    this.at = {x, y: 12, zoom};
    this.move();
  }

  centre(node) {
    const place = this.laid?.place.get(node);
    if (!place) return;
    const box = this.svg.getBoundingClientRect();
    const zoom = Math.max(this.at.zoom, 0.6);
    this.at = {x: box.width / 2 - (place[0] + WIDE / 2) * zoom,
      y: box.height / 2 - (place[1] + HIGH / 2) * zoom, zoom};
    this.move();
  }

  show(of, graph, {marks = new Map(), caption = ''} = {}) {
    const first = !this.laid;
    this.graph = graph;
    this.of = of;
    this.laid = layout(graph, (node) => of.graph.nodes[node][2] === 'input');
    this.caption.textContent = caption;
    const {place} = this.laid;
    const edges = [], boxes = [];
    graph.forEach((reads, node) => {
      const [x, y] = place.get(node);
      for (const each of new Set(reads)) {
        const start = place.get(each);
        if (!start) continue;
        const fx = start[0] + WIDE / 2, fy = start[1] + HIGH, tx = x + WIDE / 2;
        const far = y - fy > GAP_Y + 2, bend = (y - fy) / 2;
        const out = far && Math.abs(fx - tx) < WIDE ? WIDE * 0.95 : 0; // around what is between
        edges.push(s('path', {class: 'edge', d: out
          ? `M${fx} ${fy}C${fx + out} ${fy + 40} ${tx + out} ${y - 40} ${tx} ${y}`
          : `M${fx} ${fy}C${fx} ${fy + bend} ${tx} ${y - bend} ${tx} ${y}`}));
      }
      const [label, note, kind, attributes] = of.graph.nodes[node];
      const name = of.graph.names?.[node] ?? '';
      boxes.push(s('g', {class: `box ${kind} ${marks.get(node) ?? ''}`, 'data-node': node,
        transform: `translate(${x} ${y})`},
      s('title', {}, [name, label, attributes, note].filter(Boolean).join('\n')),
      s('rect', {width: WIDE, height: HIGH, rx: 6}),
      s('text', {x: 9, y: 15, class: 'label'}, cut(label.replace(/\bnn\./g, ''), 27)),
      s('text', {x: 9, y: 29, class: 'note'}, cut(name ? `${name} · ${note}` : note, 31))));
    });
    this.stage.replaceChildren(...edges, ...boxes);
    if (first) this.fit(true); else this.move();
  }

  mark(name, chosen) {
    $$('.box', this.stage).forEach((box) =>
      box.classList.toggle(name, chosen(Number(box.dataset.node))));
  }
}

// Where nodes come from: each node of any step has sources in the model as it was read.
const sourcesOf = (of, node) => of.graph.origins[node]?.[0] ?? [];
function meets(of, node, sources) {
  return sourcesOf(of, node).some((each) => sources.has(each));
}
const launchSources = (of, launch) =>
  new Set(launch?.node === null || launch === undefined ? [] : sourcesOf(of, launch.node));
// The launches that compute something of a node, and the nodes that a selection lights up.
const launchesOf = (of, node) => {
  const sources = new Set(sourcesOf(of, node));
  return of.launches.map((launch, at) => [launch, at]).filter(([launch]) =>
    launch.node === node || (launch.node !== null && meets(of, launch.node, sources)))
    .map(([, at]) => at);
};
