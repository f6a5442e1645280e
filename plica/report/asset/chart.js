// Charts: the roofline, the memory plan, tuning curves.

const CHART = {wide: 860, high: 380, left: 66, bottom: 42, right: 26, top: 26};

function frame(...parts) {
  return s('svg', {class: 'chart', viewBox: `0 0 ${CHART.wide} ${CHART.high}`,
    preserveAspectRatio: 'xMidYMid meet'}, parts);
}
const inner = {x: CHART.wide - CHART.left - CHART.right, y: CHART.high - CHART.top - CHART.bottom};
const axis = (text, side) => (side === 'left'
  ? s('text', {x: 4, y: 14, class: 'axis start'}, text)
  : s('text', {x: CHART.left + inner.x / 2, y: CHART.high - 6, class: 'axis'}, text));

function roofline(of, choose) {
  const drawn = of.launches.map((launch, at) => ({...launch, at}))
    .filter((each) => each.operations && each.seconds && each.bytes)
    .map((each) => ({...each, x: each.operations / each.bytes,
      y: each.operations / each.seconds / 1e9}));
  const ridges = of.roof.levels.map(([, speed]) => of.roof.gflops / speed);
  const xs = [...drawn.map((each) => each.x), Math.min(...ridges) / 4, Math.max(...ridges) * 4];
  const ys = [...drawn.map((each) => each.y), of.roof.gflops];
  const low = (values) => Math.floor(Math.log10(Math.min(...values)));
  const high = (values) => Math.ceil(Math.log10(Math.max(...values)));
  const [x0, x1, y0, y1] = [low(xs), high(xs), Math.min(low(ys), high(ys) - 1), high(ys)];
  const at = (x, y) => [CHART.left + (Math.log10(x) - x0) / (x1 - x0) * inner.x,
    Math.min(CHART.top + (y1 - Math.log10(y)) / (y1 - y0) * inner.y, CHART.top + inner.y)];
  const parts = [];
  for (let power = x0; power <= x1; power += 1) {
    const [x] = at(10 ** power, 1);
    parts.push(s('line', {x1: x, x2: x, y1: CHART.top, y2: CHART.top + inner.y, class: 'grid'}),
      s('text', {x, y: CHART.top + inner.y + 16, class: 'tick'}, `${Number(`1e${power}`)}`));
  }
  for (let power = y0; power <= y1; power += 1) {
    const [, y] = at(10 ** x0, 10 ** power);
    parts.push(s('line', {x1: CHART.left, x2: CHART.left + inner.x, y1: y, y2: y, class: 'grid'}),
      s('text', {x: CHART.left - 8, y: y + 4, class: 'tick end'}, `${Number(`1e${power}`)}`));
  }
  of.roof.levels.forEach(([holds, speed], level) => {
    const where = holds === null ? 'memory' : `a cache of ${bytes(holds)}`;
    const ways = [at(10 ** x0, speed * 10 ** x0), at(ridges[level], of.roof.gflops),
      at(10 ** x1, of.roof.gflops)];
    parts.push(s('polyline', {class: 'roof', points: ways.map((each) => each.join()).join(' ')},
      s('title', {}, `${speed.toFixed(1)} GB/s from ${where}`)));
  });
  const most = Math.max(...drawn.map((each) => each.seconds), 1e-12);
  drawn.sort((a, b) => b.seconds - a.seconds);
  for (const each of drawn) {
    const [x, y] = at(each.x, each.y);
    parts.push(s('circle', {cx: x, cy: y, r: 3 + 13 * Math.sqrt(each.seconds / most),
      class: 'kernel', 'data-launch': each.at, onclick: () => choose(each.at)},
    s('title', {}, `${each.title}\n${each.y.toFixed(2)} GFLOP/s, ${each.x.toFixed(2)} FLOP/byte\n` +
      `${percent(each.roof)} of the roof`)));
  }
  const named = []; // no name is written over another
  drawn.slice(0, 6).forEach((each) => {
    const [x, y] = at(each.x, each.y);
    if (named.some(([nx, ny]) => Math.abs(nx - x) < 150 && Math.abs(ny - y) < 14)) return;
    named.push([x, y]);
    parts.push(s('text', {x: x + 16, y: y + 4, class: 'name'}, cut(each.title.split(':')[0], 24)));
  });
  return frame(...parts, axis('operations a byte'), axis('GFLOP/s', 'left'));
}

// Which bytes each value has, and when; the colour is the share of time of the launch that makes it.
function memory(of, choose) {
  const {size, steps, rows} = of.plan, parts = [];
  const wide = inner.x / Math.max(steps, 1), high = inner.y / Math.max(size, 1);
  for (let part = 0; part <= 4; part += 1) {
    const y = CHART.top + inner.y * part / 4;
    parts.push(s('line', {x1: CHART.left, x2: CHART.left + inner.x, y1: y, y2: y, class: 'grid'}),
      s('text', {x: CHART.left - 8, y: y + 4, class: 'tick end'}, bytes(size * (4 - part) / 4)));
  }
  const most = Math.max(...of.launches.map((each) => each.seconds), 1e-12);
  for (const [offset, extent, born, last, maker] of rows) {
    const launch = maker === null ? null : of.launches[maker];
    const heat = launch ? 0.18 + 0.72 * Math.sqrt(launch.seconds / most) : 0.12;
    parts.push(s('rect', {class: 'tenant', 'data-launch': maker, 'fill-opacity': heat.toFixed(2),
      x: CHART.left + born * wide, width: Math.max((last - born + 1) * wide - 0.5, 0.8),
      y: CHART.top + inner.y - (offset + extent) * high, height: Math.max(extent * high, 0.8),
      onclick: () => maker !== null && choose(maker)},
    s('title', {}, `${bytes(extent)} at ${count(offset)}, steps ${born} to ${last}\n` +
      `${launch?.title ?? 'an input of the plan'}`)));
  }
  return frame(...parts, axis('step'), axis(`workspace of ${bytes(size)}`, 'left'));
}

function curve({costs}) {
  const good = costs.filter((each) => each !== null);
  const low = Math.min(...good), high = Math.max(...good), parts = [], points = [];
  const y = (cost) => CHART.top + inner.y * (high > low
    ? (Math.log(high) - Math.log(cost)) / (Math.log(high) - Math.log(low)) : 0.5);
  const x = (at) => CHART.left + inner.x * (at + 0.5) / costs.length;
  let best = Infinity;
  const flipped = (cost) => CHART.top + inner.y - (y(cost) - CHART.top);
  costs.forEach((cost, at) => {
    if (cost !== null) {
      best = Math.min(best, cost);
      parts.push(s('circle', {cx: x(at), cy: flipped(cost), r: 2.5, class: 'trial'},
        s('title', {}, `trial ${at}: ${duration(cost)}`)));
    }
    if (best < Infinity) points.push(`${x(at)},${flipped(best)}`);
  });
  for (const cost of new Set([low, high])) {
    parts.push(s('text', {x: CHART.left - 8, y: flipped(cost) + 4, class: 'tick end'},
      duration(cost)));
  }
  return frame(...parts, s('polyline', {class: 'roof', points: points.join(' ')}),
    axis('trial'), axis('best so far', 'left'));
}
