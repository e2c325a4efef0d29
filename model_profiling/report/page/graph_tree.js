// The graph as groups within groups, and where everything lies. Each unfolded group is laid out on its own by dagre, so
// that the work is that of what one sees: a graph of thousands of operators is many small ones.
const MOST_CHILDREN = 60;
const FIRST_BOXES = 45;
const RUNTIME_GROUP = "ExecuTorch runtime";
const graphText = (number) => data.graph.strings[number];

// A number alone says nothing: `blocks.3`.
const groupName = (name, parent) => (/^\d+$/.test(name) && parent?.parent ? `${parent.name}.${name}` : name);
const graphGroup = (id, name, parent) => ({ id, name: groupName(name, parent), parent, group: true, children: [], links: new Map() });

// Where a node belongs: modules, or first the delegate that runs it.
const graphPath = (node, grouping) => {
  if (node.node === "runtime") return [RUNTIME_GROUP];
  if (node.node !== "operator") return [];
  const modules = node.module ? node.module.split(".") : [];
  if (grouping !== "delegate") return modules;
  return node.where === "delegated" ? [`delegate at instruction ${node.instruction}`, ...modules] : modules;
};

// A group of one is that one; its name goes before the one it holds.
const joinSingles = (group) => {
  group.children = group.children.map((child) => {
    if (!child.group) return child;
    joinSingles(child);
    if (child.children.length !== 1) return child;
    const [only] = child.children;
    const joined = (inner) => (!inner ? child.name : inner.startsWith(`${child.name}.`) ? inner : `${child.name}.${inner}`);
    if (only.group) only.name = joined(only.name);
    else only.under = joined(only.under);
    return only;
  });
  for (const child of group.children) child.parent = group;
};

// More than fit one picture become parts, in execution order.
const cutLong = (group) => {
  group.children.forEach((child) => child.group && cutLong(child));
  group.children.sort((a, b) => graphFirst(a) - graphFirst(b));
  // What enters and leaves the program stays outside, and so does ExecuTorch's own time.
  const apart = (child) => child.name === RUNTIME_GROUP || (child.node && child.node.node !== "operator");
  const outside = group.children.filter(apart);
  const few = outside.length <= MOST_CHILDREN / 3;
  let inside = few ? group.children.filter((child) => !apart(child)) : group.children;
  for (let level = 1; inside.length > MOST_CHILDREN; level += 1) {
    const count = Math.ceil(inside.length / MOST_CHILDREN);
    const size = Math.ceil(inside.length / count);
    inside = Array.from({ length: count }, (_, part) => {
      const made = graphGroup(`${group.id}/#${level}.${part}`, `part ${part + 1} of ${count}`, group);
      made.children = inside.slice(part * size, (part + 1) * size);
      for (const child of made.children) child.parent = made;
      return made;
    });
  }
  group.children = few ? [...outside, ...inside] : inside;
  group.children.sort((a, b) => graphFirst(a) - graphFirst(b));
};

const graphFirst = (box) => {
  if (!box.group) return box.node.node === "input" ? box.node.id - 1e9 : box.node.id;
  box.first ??= Math.min(...box.children.map(graphFirst));
  return box.first;
};

const SUMS = ["ms", "share", "operators", "transposes", "before", "after", "placedMs", "difference", "moved", "told", "changed", "onlyBefore", "onlyAfter"];
// Of a node of two programs: what of its difference can be told from noise, and which side it is of.
const differences = ({ node, told, changed, side, before_ms: before, after_ms: after }) => {
  const difference = told ? after - before : 0;
  const only = (name) => Number(node === "operator" && side === name);
  return { difference, moved: Math.abs(difference), told: Number(!!told), changed: Number(!!changed), onlyBefore: only("before"), onlyAfter: only("after") };
};

// What a group takes in all; a box of one operator has the same fields.
const addUp = (box) => {
  if (!box.group) {
    const { node } = box;
    return Object.assign(box, {
      ms: node.ms ?? 0, share: node.share ?? 0, operators: Number(node.node === "operator"), transposes: Number(!!node.transpose),
      before: node.before_ms ?? 0, after: node.after_ms ?? 0, ...differences(node), placedMs: node.placed ? node.ms ?? 0 : 0,
      sme2: { yes: 0, no: 0, unknown: 0, ...(node.sme2 ? { [node.sme2]: 1 } : {}) },
      parts: { [node.category]: node.ms ?? 0 }, sqnr: node.sqnr ?? null,
    });
  }
  Object.assign(box, Object.fromEntries(SUMS.map((name) => [name, 0])), { sme2: { yes: 0, no: 0, unknown: 0 }, parts: {}, sqnr: null });
  for (const child of box.children) {
    addUp(child);
    for (const name of SUMS) box[name] += child[name];
    for (const name of Object.keys(box.sme2)) box.sme2[name] += child.sme2[name];
    for (const [name, ms] of Object.entries(child.parts)) box.parts[name] = (box.parts[name] ?? 0) + ms;
    if (child.sqnr !== null) box.sqnr = Math.min(box.sqnr ?? Infinity, child.sqnr);
  }
  return box;
};

const graphTree = (graph, grouping) => {
  const root = graphGroup("", "", null);
  const groups = new Map([["", root]]);
  const leaves = new Map();
  for (const node of graph.nodes) {
    let at = root;
    for (const name of graphPath(node, grouping)) {
      const id = `${at.id}/${name}`;
      if (!groups.has(id)) {
        groups.set(id, graphGroup(id, name, at));
        at.children.push(groups.get(id));
      }
      at = groups.get(id);
    }
    const leaf = { id: `node ${node.id}`, group: false, node, parent: at };
    leaves.set(node.id, leaf);
    at.children.push(leaf);
  }
  joinSingles(root);
  cutLong(root);
  addUp(root);
  linkUp(graph, leaves);
  return { root, leaves };
};

const ancestors = (box) => {
  const found = [];
  for (let at = box; at; at = at.parent) found.push(at);
  return found.reverse();
};

// An edge is drawn in the innermost group that holds both its ends, between what of it holds each.
const linkUp = (graph, leaves) => {
  for (const leaf of leaves.values()) [leaf.from, leaf.to] = [[], []];
  for (const [source, target, tensor, order, side = 0, through = 0] of graph.edges) {
    const [one, other] = [leaves.get(source), leaves.get(target)];
    if (!one || !other) continue;
    const [above, below] = [ancestors(one), ancestors(other)];
    let depth = 0;
    while (above[depth + 1] && above[depth + 1] === below[depth + 1]) depth += 1;
    const [from, to] = [above[depth + 1], below[depth + 1]];
    const key = `${from.id}\n${to.id}`;
    const link = above[depth].links.get(key) ?? { from, to, tensors: [], order: true, through: true, sides: new Set() };
    link.order &&= Boolean(order);
    link.through &&= Boolean(through);
    link.sides.add(side);
    if (!order) link.tensors.push(graphText(tensor));
    above[depth].links.set(key, link);
    if (!order) {
      one.to.push(other);
      other.from.push(one);
    }
  }
};

// Unfold what changed most, or takes most of the time, as long as it all fits one look.
const firstUnfolded = (root) => {
  const open = new Set();
  const closed = root.children.filter((box) => box.group);
  let boxes = root.children.length;
  while (closed.length > 0) {
    closed.sort((a, b) => a.moved - b.moved || a.ms - b.ms || a.operators - b.operators);
    const next = closed.pop();
    // A few boxes alone tell nothing, whatever they hold.
    if (next.name === RUNTIME_GROUP || (boxes > 10 && boxes + next.children.length > FIRST_BOXES)) continue;
    open.add(next.id);
    boxes += next.children.length;
    closed.push(...next.children.filter((box) => box.group));
  }
  return open;
};

// Larger where more time goes: an operator of 1 % is a little larger than the smallest, one of all the time more than twice.
const boxSize = (box) => {
  const factor = 1 + 1.3 * Math.sqrt(Math.min(Math.max(box.share, 0), 1));
  const letters = Math.max(box.title.length + (box.group ? 3 : 0), box.subtitle.length * 0.86, box.foot.length * 0.86);
  const width = Math.max(92, Math.min(250, letters * 7.3 + 26));
  const lines = 1 + Number(box.subtitle !== "") + Number(box.foot !== "");
  return [Math.round(width * (1 + (factor - 1) / 2)), Math.round((16 + 15 * lines) * factor)];
};

const GROUP_HEAD = 30;
const GROUP_PAD = 14;

// Give every visible box its size and its place in its group; returns nothing.
const layOut = (group, open) => {
  for (const child of group.children) {
    child.open = child.group && open.has(child.id);
    if (child.open) layOut(child, open);
    else [child.width, child.height] = boxSize(child);
  }
  const [width, height] = group.links.size > 0 ? layered(group) : inRows(group);
  const letters = group.parent ? group.headline.length * 7.1 + 40 : 0;
  const shift = Math.max(0, (letters - width - 2 * GROUP_PAD) / 2);
  const [left, top] = group.parent ? [GROUP_PAD + shift, GROUP_HEAD + GROUP_PAD] : [GROUP_PAD, GROUP_PAD];
  for (const child of group.children) [child.x, child.y] = [child.x + left, child.y + top];
  for (const link of group.links.values()) link.points = link.points?.map(({ x, y }) => ({ x: x + left, y: y + top }));
  [group.width, group.height] = [Math.max(width + 2 * GROUP_PAD, letters), height + top + GROUP_PAD];
};

const layered = (group) => {
  const picture = new dagre.graphlib.Graph({ multigraph: false });
  picture.setGraph({ rankdir: "TB", acyclicer: "greedy", nodesep: 18, ranksep: 26, edgesep: 12, marginx: 0, marginy: 0 });
  for (const child of group.children) picture.setNode(child.id, { width: child.width, height: child.height });
  // Groups can feed each other both ways (a module that is called twice): what goes up is then what least is known of.
  for (const { from, to, tensors } of group.links.values()) picture.setEdge(from.id, to.id, { weight: 1 + 2 * tensors.length });
  dagre.layout(picture);
  for (const child of group.children) {
    const { x, y } = picture.node(child.id);
    [child.x, child.y] = [x - child.width / 2, y - child.height / 2];
  }
  for (const link of group.links.values()) link.points = picture.edge(link.from.id, link.to.id).points;
  return [picture.graph().width, picture.graph().height];
};

// What nothing joins lies in rows.
const inRows = (group) => {
  const across = Math.ceil(Math.sqrt(group.children.length));
  let [x, y, tallest, widest] = [0, 0, 0, 0];
  group.children.forEach((child, place) => {
    if (place > 0 && place % across === 0) [x, y, tallest] = [0, y + tallest + 14, 0];
    [child.x, child.y] = [x, y];
    x += child.width + 14;
    tallest = Math.max(tallest, child.height);
    widest = Math.max(widest, x - 14);
  });
  return [Math.max(widest, 60), y + tallest];
};
