// Questions: why is this node here, what became of that one, what did a rule do.

function nodeLink(of, node) {
  const last = graphAt(of.graph, frames()).has(node);
  const first = graphAt(of.graph, 0).has(node);
  return h('button', {class: 'link', onclick: () => {
    change({node, launch: launchesOf(of, node)[0] ?? null,
      step: first ? 0 : last ? frames() : firstSeen(of, node)});
    focusNode(node);
  }}, named(of, node), ' ', h('small', {}, of.graph.nodes[node][1]));
}
// Several operators may have been read from one node of the model: they are named once.
const sourceLinks = (of, nodes) => {
  const called = (node) => of.graph.names?.[node] ?? node;
  return [...new Map(nodes.map((each) => [called(each), each])).values()]
    .map((each) => [nodeLink(of, each), ' ']);
};
const firstSeen = (of, node) =>
  1 + of.graph.frames.findIndex(([, , , , set]) => set.some(([each]) => each === node));

function why(of, node) {
  const [sources, rules] = of.graph.origins[node];
  const stepsOf = (rule) => of.graph.frames.findIndex(([name]) => name === rule) + 1;
  return h('div', {class: 'answer'}, h('p', {}, h('b', {}, named(of, node)), ' comes from ',
    sources.length ? sourceLinks(of, sources) : 'constants alone',
    rules.length ? ['by ', rules.map((rule) => [ruleLink(of, rule, stepsOf(rule)), ' '])]
      : 'and no rule touched it', '.'));
}
const ruleLink = (of, rule, step) => h('button', {class: 'link rule',
  title: 'the first step of this rule', onclick: () => step && change({step})}, rule);

function became(of, source) {
  const final = [...graphAt(of.graph, frames()).keys()]
    .filter((node) => sourcesOf(of, node).includes(source));
  const launches = of.launches.map((each, at) => [each, at])
    .filter(([each]) => each.node !== null && sourcesOf(of, each.node).includes(source));
  return h('div', {class: 'answer'}, h('p', {}, h('b', {}, named(of, source)), ' became ',
    final.length ? final.map((each) => [nodeLink(of, each), ' ']) : 'nothing that runs',
    launches.length ? [', computed by ', launches.map(([each, at]) => [launchLink(each, at), ' '])]
      : null, '.'));
}
const launchLink = (launch, at) => h('button', {class: 'link', onclick: () => selectLaunch(at)},
  launch.title, ' ', h('small', {}, duration(launch.seconds)));

function impact(of, rule) {
  const steps = of.graph.frames.map(([name], at) => [name, at + 1])
    .filter(([name]) => name === rule).map(([, at]) => at);
  const touched = of.launches.map((each, at) => [each, at]).filter(([each]) =>
    each.node !== null && of.graph.origins[each.node][1].includes(rule));
  const whole = of.launches.reduce((sum, each) => sum + each.seconds, 0) || 1;
  const time = touched.reduce((sum, [each]) => sum + each.seconds, 0);
  const gone = steps.reduce((sum, at) => sum + of.graph.frames[at - 1][3].length, 0);
  const made = steps.reduce((sum, at) => sum + of.graph.frames[at - 1][5].length, 0);
  return h('div', {class: 'answer'}, h('p', {}, h('b', {}, rule), ` was used ${steps.length} times `,
    `(contract ${of.graph.frames[steps[0] - 1]?.[2] ?? ''}): ${gone} nodes went, ${made} came. `,
    `${touched.length} of ${of.launches.length} kernels come from it, ${percent(time / whole)} `,
    'of the time.'),
  h('p', {}, 'Steps: ', steps.slice(0, 40).map((at) =>
    [h('button', {class: 'link', onclick: () => change({step: at})}, at), ' ']),
  steps.length > 40 ? `and ${steps.length - 40} more` : ''),
  h('p', {}, touched.slice(0, 12).map(([each, at]) => [launchLink(each, at), h('br')])));
}

// `why X`, `became X`, `impact RULE`: a node by its name, a rule by its own.
function asked(of, question) {
  const [, verb, what] = question.trim().match(/^(why|became|impact)\s+(.+)$/) ?? [];
  if (!verb) return h('p', {class: 'soft'}, 'Ask: why NODE, became NODE, or impact RULE.');
  if (verb === 'impact') {
    return of.graph.frames.some(([name]) => name === what) ? impact(of, what)
      : h('p', {}, `No step used a rule ${what}.`);
  }
  const node = nodeNamed(of, what, verb === 'became' ? [0, frames()] : [frames(), 0]);
  if (node === null) return h('p', {}, `There is no node ${what}.`);
  return verb === 'why' ? why(of, node) : became(of, node);
}
function nodeNamed(of, what, steps) {
  for (const step of steps) {
    for (const node of graphAt(of.graph, step).keys()) {
      if (`${node}` === what.replace('#', '') || named(of, node) === what ||
        (of.graph.names?.[node] ?? '').split(', ').includes(what)) return node;
    }
  }
  return null;
}
const questions = (of) => [
  ...new Set(of.graph.frames.map(([name]) => `impact ${name}`)),
  ...Object.values(of.graph.names ?? {}).map((name) => `became ${name}`),
  ...of.launches.filter((each) => each.node !== null).map((each) => `why #${each.node}`),
];
