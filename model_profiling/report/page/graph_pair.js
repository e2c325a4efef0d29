// What a graph of two programs has besides: differences, boxes of one side only, and the filter for what changed.
const [FASTER, SLOWER, BARELY] = ["#0072b2", "#c24e00", "#ececef"];
const ONLY = { before: "only before", after: "only now" };
const MARKS = { before: "− ", after: "+ " };
const ABOUT_PAIR = "Both programs as one graph: what is one in both is one box. Colour is a difference that can be told from noise. Larger means more of the time, of the longer of the two. Groups are modules: click one, or press Enter, to unfold it. ";
const signedMs = (ms) => `${ms < 0 ? "−" : "+"}${shownMs(Math.abs(ms))}`;

// The last line of a box. A difference is claimed only where it can be told from noise.
const pairFoot = (box, { pair }) => {
  const side = box.node?.side ?? (box.after === 0 && box.before > 0 ? "before" : box.before === 0 && box.after > 0 ? "after" : "");
  if (side) return `${ONLY[side]} · ${shownMs(box[side])}`;
  if (box.told > 0) return `${signedMs(box.difference)} · now ${shownMs(box.after)}`;
  return pair.known ? `~ · now ${shownMs(box.after)}` : `${shownMs(box.before)} → ${shownMs(box.after)}`;
};

const pairColour = (box, { most }) => {
  if (box.told === 0 || box.difference === 0) return null;
  return inked(mixed(BARELY, box.difference < 0 ? FASTER : SLOWER, 0.2 + 0.8 * Math.sqrt(Math.abs(box.difference) / most)));
};

const pairLegend = ({ most }, known) => {
  const none = known ? "~: no difference can be told from noise" : "what changed cannot be told: too few launches, or times that cannot be relied on";
  return [...(most > 0 ? [[FASTER, `faster by ${shownMs(most)} or more`], [SLOWER, `slower by ${shownMs(most)} or more`]] : []), ["var(--surface)", none]];
};

// How many operators each program has in a box.
const sidesOf = (box) => `${box.operators - box.onlyAfter} before, ${box.operators - box.onlyBefore} now`;

const aboutPair = (box, { pair }) => {
  const pairs = [["time before", shownMs(box.before)], ["time now", shownMs(box.after)]];
  const told = `${signedMs(box.difference)} in ${box.told} ${box.told === 1 ? "operator" : "operators"} whose line's difference can be told from noise`;
  pairs.push(["difference", box.told > 0 ? told : pair.known ? "~" : "unknown"], ["operators", sidesOf(box)], ["changed", String(box.changed)]);
  for (const [side, count] of [["before", box.onlyBefore], ["after", box.onlyAfter]]) if (count > 0) pairs.push([ONLY[side], String(count)]);
  return pairs;
};

// The graph without what did not change: edges lead through what is left out, from the nearest few that are shown.
const MOST_THROUGH = 8;
const changedOnly = (graph) => {
  const some = graph.nodes.some((node) => node.changed);
  const nodes = graph.nodes.filter((node) => node.changed || (some && (node.node === "input" || node.node === "output")));
  const kept = new Set(nodes.map((node) => node.id));
  const incoming = new Map();
  for (const edge of graph.edges) {
    if (!incoming.has(edge[1])) incoming.set(edge[1], []);
    incoming.get(edge[1]).push(edge);
  }
  const place = (node) => (node.node === "input" ? node.id - 1e9 : node.id);
  const [edges, reached] = [[], new Map()];
  for (const { id } of [...graph.nodes].sort((a, b) => place(a) - place(b))) {
    const from = new Map();
    for (const edge of incoming.get(id) ?? []) {
      if (kept.has(edge[0])) from.set(edge[0], edge);
      else for (const far of reached.get(edge[0]) ?? []) if (!from.has(far) && far !== id) from.set(far, [far, id, edge[2], 0, 0, 1]);
    }
    if (kept.has(id)) edges.push(...from.values());
    else reached.set(id, [...from.keys()].sort((a, b) => b - a).slice(0, MOST_THROUGH));
  }
  return { ...graph, nodes, edges };
};
