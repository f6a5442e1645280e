// Nests: the text of a kernel at a frame, what the step changed in it, and the list of steps.

function linesAt(of, kernelFilm, frame) {
  kernelFilm.texts ??= [];
  for (let at = kernelFilm.texts.length; at <= frame; at += 1) {
    const now = at ? [...kernelFilm.texts[at - 1]] : [];
    for (const [place, dropped, lines] of kernelFilm[at][6]) now.splice(place, dropped, ...lines);
    kernelFilm.texts.push(now);
  }
  return kernelFilm.texts[frame].map((line) => of.lines[line]);
}

const WORDS = /(\b(?:for|in|with|if|else|and|or|not|def|return|as)\b)|(\b(?:vectorized|unrolled|parallel|range|grid|block|init|alloc|bind|min|max|combine)\b)|(\b\d[\d.e]*\b)|("[^"]*")/g;
const KINDS = ['', 'w-key', 'w-kind', 'w-num', 'w-str'];
function coloured(line) {
  const found = [];
  let from = 0;
  for (const match of line.matchAll(WORDS)) {
    found.push(line.slice(from, match.index));
    const kind = KINDS[[1, 2, 3, 4].find((group) => match[group] !== undefined)];
    found.push(h('span', {class: kind}, match[0]));
    from = match.index + match[0].length;
  }
  return [...found, line.slice(from)];
}

const row = (sign, line) => h('div', {class: `line ${{'+': 'add', '-': 'del'}[sign] ?? ''}`},
  h('i', {}, sign), coloured(line));

// The text after a frame, with the lines that its step took away and brought.
function changedLines(of, kernelFilm, frame) {
  if (!frame) return linesAt(of, kernelFilm, 0).map((line) => row(' ', line));
  const old = linesAt(of, kernelFilm, frame - 1), found = [];
  let from = 0;
  for (const [place, dropped, lines] of [...kernelFilm[frame][6]].reverse()) {
    old.slice(from, place).forEach((line) => found.push(row(' ', line)));
    old.slice(place, place + dropped).forEach((line) => found.push(row('-', line)));
    lines.forEach((line) => found.push(row('+', of.lines[line])));
    from = place + dropped;
  }
  old.slice(from).forEach((line) => found.push(row(' ', line)));
  return found;
}

const LEVELS = {stages: 'stages', form: 'form', schedule: 'schedule', lower: 'lowering'};

function nestPane(of, kernelFilm, frame, title) {
  const [level, step, why, cycles, seconds, refused] = kernelFilm[frame];
  const facts = [LEVELS[level], cycles && `about ${count(cycles)} cycles`,
    seconds && duration(seconds), refused && `cannot be lowered here: ${refused}`].filter(Boolean);
  const changed = kernelFilm[frame][6].length > 0 || !frame;
  return h('figure', {class: 'pane'},
    h('figcaption', {}, h('b', {}, title ? `${title}: ` : '', step), ' ', facts.join(' · '),
      why ? h('div', {class: 'soft'}, why) : null,
      changed ? null : h('div', {class: 'soft'}, 'The loops stay as they are.')),
    h('pre', {class: 'code'}, changedLines(of, kernelFilm, frame)));
}

// Every step of a kernel with its cost, time and share of the roof, as bars.
function stepTable(of, kernelFilm, frame, go, work) {
  const most = Math.max(...kernelFilm.map((each) => each[4] ?? 0), 0);
  const far = Math.max(...kernelFilm.map((each) => each[3] ?? 0), 0);
  const bar = (part) => h('span', {class: 'bar', style: `width:${Math.max(1, 44 * part)}px`});
  return h('table', {class: 'steps'},
    h('thead', {}, h('tr', {}, ['', 'step', 'cycles', 'time', 'roof'].map((word, at) =>
      h('th', {class: at > 1 ? 'n' : null}, word)))),
    h('tbody', {}, kernelFilm.map(([level, step, , cycles, seconds, refused, delta], at) => {
      const roof = work && roofOf(of, work[0], work[1], seconds);
      return h('tr', {class: `${level} ${at === frame ? 'on' : ''} ${delta.length ? '' : 'same'}`,
        'data-frame': at, onclick: () => go(at)},
      h('td', {class: 'n'}, at), h('td', {}, h('code', {}, cut(step, 64))),
      h('td', {class: 'n'}, cycles ? [brief(cycles), ' ', bar(cycles / far)] : ''),
      h('td', {class: 'n'}, seconds ? [duration(seconds), ' ', bar(seconds / most)]
        : refused ? h('span', {title: refused}, 'cannot run') : ''),
      h('td', {class: 'n'}, roof ? percent(roof) : ''));
    })));
}
