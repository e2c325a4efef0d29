// What colours and labels a box has. Colours are the same in light and dark, each with an ink that is readable on it.
const PLAIN = ["#d9dbe0", "#111111"];
const mixed = (from, to, part) => {
  const parse = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [a, b, amount] = [parse(from), parse(to), Math.min(Math.max(part, 0), 1)];
  return `#${a.map((value, place) => Math.round(value + (b[place] - value) * amount).toString(16).padStart(2, "0")).join("")}`;
};
const inked = (colour) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  return [colour, 0.3 * r + 0.59 * g + 0.11 * b > 0.5 ? "#111111" : "#fdfdfd"];
};
const percent = (part) => `${(part * 100).toFixed(1)} %`;
const timesFaster = (box) => (box.before > 0 && box.after > 0 ? box.before / box.after : null);
const sme2Of = ({ sme2: { yes, no, unknown } }) => (yes + no + unknown === 0 ? null : { yes, no, unknown, all: yes + no + unknown });

// Each way to colour: whether a graph has what it shows, the colour of a box, what its last line says, and the legend.
const graphColourings = {
  difference: {
    name: "difference",
    has: (graph) => Boolean(graph.pair),
    colour: pairColour,
    plain: true,
    legend: (tree, graph) => pairLegend(tree, graph.pair.known),
  },
  category: {
    name: "category",
    has: () => true,
    colour: (box) => (box.group ? null : box.node.node === "operator" ? data.colours[box.node.category] : null),
    legend: (tree) => Object.keys(data.colours).filter((name) => name in tree.root.parts).map((name) => [data.colours[name][0], name]),
  },
  time: {
    name: "time",
    has: (graph) => graph.execute_ms !== null,
    colour: (box, tree) => (box.ms > 0 ? inked(mixed("#fff3e0", "#b32900", Math.sqrt(box.share / (tree.hottest || 1)))) : PLAIN),
    legend: (tree) => [["#fff3e0", "0 %"], [mixed("#fff3e0", "#b32900", 0.5), percent(tree.hottest / 4)], ["#b32900", `${percent(tree.hottest)} of the time`]],
  },
  speedup: {
    name: "times faster",
    has: (graph) => graph.sides[0] !== "" && graph.execute_ms !== null && !graph.pair,
    colour: (box) => {
      const ratio = timesFaster(box);
      if (ratio === null) return PLAIN;
      const part = Math.log2(ratio) / 2;
      return inked(part < 0 ? mixed("#ececef", "#c24e00", -2 * part) : mixed("#ececef", "#007a59", part));
    },
    foot: (box) => (timesFaster(box) === null ? "" : `${timesFaster(box).toFixed(2)}x`),
    legend: () => [["#c24e00", "slower"], ["#ececef", "as fast"], [mixed("#ececef", "#007a59", 0.5), "2x"], ["#007a59", "4x faster or more"]],
  },
  sme2: {
    name: "SME2 or not",
    has: (graph) => graph.nodes.some((node) => node.sme2),
    colour: (box) => {
      const found = sme2Of(box);
      if (found === null) return PLAIN;
      if (found.unknown === found.all) return ["#8a8d96", "#111111"];
      return inked(mixed("#e69f00", "#0072b2", found.yes / found.all));
    },
    foot: (box) => {
      const found = sme2Of(box);
      if (found === null) return "";
      if (box.group) return found.unknown ? `SME2 unknown (${found.all})` : `SME2 ${found.yes} of ${found.all}`;
      return found.yes ? "SME2" : found.no ? "not SME2" : "SME2 unknown";
    },
    legend: () => [["#0072b2", "on SME2"], ["#e69f00", "CONV or GEMM, not on SME2"], ["#8a8d96", "not known"], [PLAIN[0], "not a matter of SME2"]],
  },
  sqnr: {
    name: "SQNR",
    has: (graph) => graph.nodes.some((node) => node.sqnr !== undefined),
    colour: (box) => (box.sqnr === null ? PLAIN : inked(mixed("#b32900", "#e3f2e9", box.sqnr / 60))),
    foot: (box) => (box.sqnr === null ? "" : `${box.sqnr.toFixed(1)} dB`),
    legend: () => [["#b32900", "0 dB"], [mixed("#b32900", "#e3f2e9", 0.5), "30 dB"], ["#e3f2e9", "60 dB or more"]],
  },
};

// The lines of a box: what it is, where it is, what it takes.
const labelBoxes = (box, graph, colouring) => {
  box.children?.forEach((child) => labelBoxes(child, graph, colouring));
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const time = graph.execute_ms !== null && box.node?.node !== "input" && box.node?.node !== "output";
  const took = !time ? "" : graph.pair ? pairFoot(box, graph) : `${shownMs(box.ms)} · ${percent(box.share)}`;
  box.foot = colouring.foot?.(box) || took;
  if (box.group) {
    box.title = cut(box.name, 30);
    box.subtitle = box.operators > 0 ? `${box.operators} operators${box.transposes ? `, ${box.transposes} ⇄` : ""}` : `${box.children.length} parts`;
    box.headline = cut(`▾ ${box.name}${took && ` · ${took}`}`, 60);
  } else {
    const { node } = box;
    box.title = cut(`${MARKS[node.side] ?? ""}${node.transpose ? "⇄ " : ""}${node.title ?? node.name}`, 30);
    const shape = node.shape !== undefined ? graphText(node.shape) : "";
    box.subtitle = cut(node.node === "operator" && node.transpose ? shape : box.under ?? shape, 34);
    if (node.node === "input" || node.node === "output") [box.title, box.subtitle] = [node.name, cut(shape || graphText(node.facts[1] ?? 0), 34)];
    if (node.node === "runtime") [box.title, box.subtitle] = [node.name, node.instruction >= 0 ? `instruction ${node.instruction}` : ""];
  }
};
