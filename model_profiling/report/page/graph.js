// The graph of operators: drawn, unfolded, coloured, searched, walked through by mouse or keys, saved as SVG.
const graphSection = document.getElementById("graph");

const graphView = () => {
  const find = (selector) => graphSection.querySelector(selector);
  const [canvas, detail, experimentChoice, colourChoice, groupChoice] = [".graph-canvas", ".graph-detail", ".graph-experiment", ".graph-colour", ".graph-grouping"].map(find);
  const changedChoice = find(".graph-changed input");
  const { graphs } = data.graph;
  let graph = graphs[0];
  let tree, open, chosen = null, focused = null, zoom = 1, svg = null, visible = [];

  const colouring = () => graphColourings[colourChoice.value] ?? graphColourings.category;

  const build = (keep) => {
    const filtered = Boolean(graph.pair) && changedChoice.checked;
    tree = graphTree(filtered ? changedOnly(graph) : graph, groupChoice.value);
    tree.most = Math.max(...[...tree.leaves.values()].map((leaf) => leaf.moved), 0);
    tree.hottest = Math.max(...[...tree.leaves.values()].filter((leaf) => leaf.node.node === "operator").map((leaf) => leaf.share), 0);
    tree.groups = new Map();
    const collect = (box) => { if (box.group) { tree.groups.set(box.id, box); box.children.forEach(collect); } };
    collect(tree.root);
    open = keep ? new Set([...open].filter((id) => tree.groups.has(id))) : firstUnfolded(tree.root);
    find(".graph-notes").textContent = graph.notes.length > 0 ? `${graph.notes.join("; ")}.` : "";
    find(".graph-sum").textContent = graph.pair ? pairSum(filtered) : `${tree.root.operators} operators` + (graph.execute_ms === null ? "" : `; all boxes together: ${shownMs(tree.root.ms)} = Method::execute`);
    graphSection.dataset.sum = graph.pair ? tree.root.after : tree.root.ms;
    if (graph.pair) graphSection.dataset.before = tree.root.before;
  };

  const pairSum = (filtered) => {
    if (!filtered) return `Operators: ${sidesOf(tree.root)}; all boxes together: ${shownMs(tree.root.before)} before, ${shownMs(tree.root.after)} now = Method::execute.`;
    return tree.root.changed === 0 ? "Nothing changed." : `${tree.root.operators} of ${graph.nodes.filter((node) => node.node === "operator").length} operators changed; the others are hidden, and edges lead through them.`;
  };

  const boxOf = (id) => (id === null ? null : tree.groups.get(id) ?? [...tree.leaves.values()].find((leaf) => leaf.id === id) ?? null);
  const draw = () => {
    labelBoxes(tree.root, graph, colouring());
    layOut(tree.root, open);
    ({ svg, visible } = drawGraph({ tree, graph, colouring: colouring(), chosen }));
    canvas.replaceChildren(svg);
    canvas.classList.toggle("plain", Boolean(colouring().plain));
    scale();
    rove(visible.includes(boxOf(focused)) ? focused : visible[0]?.id ?? null, false);
    legend();
    highlight();
  };

  const scale = () => {
    svg.setAttribute("width", Math.round(tree.root.width * zoom));
    svg.setAttribute("height", Math.round(tree.root.height * zoom));
    canvas.dataset.zoom = zoom;
  };
  const zoomBy = (factor) => {
    const [x, y] = [(canvas.scrollLeft + canvas.clientWidth / 2) / zoom, (canvas.scrollTop + canvas.clientHeight / 2) / zoom];
    zoom = Math.min(Math.max(zoom * factor, 0.05), 4);
    scale();
    [canvas.scrollLeft, canvas.scrollTop] = [x * zoom - canvas.clientWidth / 2, y * zoom - canvas.clientHeight / 2];
  };
  const fit = () => {
    zoom = Math.min(1, (canvas.clientWidth - 4) / tree.root.width, (canvas.clientHeight - 4) / tree.root.height);
    scale();
  };
  // Readable, and as much as fits across.
  const fitAcross = () => {
    zoom = Math.min(1, Math.max(0.55, (canvas.clientWidth - 4) / tree.root.width));
    scale();
    canvas.scrollLeft = (tree.root.width * zoom - canvas.clientWidth) / 2;
  };

  const legend = () => {
    const items = colouring().legend(tree, graph).map(([colour, text]) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colour;
      return element("li", {}, swatch, text);
    });
    const marks = ["⇄ and slanted: transpose", "dotted border: portable", "dashed edge: order only"];
    if (graph.pair) marks.push("−, struck out, dashed border: only before", "+, thick border: only now", "dotted edge: only before", "thick edge: only now");
    if (graph.pair && changedChoice.checked) marks.push("edge of long dashes: through what did not change");
    find(".graph-legend").replaceChildren(...items, ...marks.map((text) => element("li", {}, text)));
  };

  const elementOf = (id) => [...svg.querySelectorAll(".box")].find((box) => box.dataset.id === id) ?? null;
  // One box at a time is in the tab order; arrows move on from it.
  const rove = (id, focus = true) => {
    svg.querySelectorAll('.box[tabindex="0"]').forEach((box) => box.setAttribute("tabindex", "-1"));
    const found = id === null ? null : elementOf(id);
    if (!found) return;
    focused = id;
    found.setAttribute("tabindex", "0");
    if (focus) {
      found.focus({ preventScroll: true });
      reveal(boxOf(id));
    }
  };
  const reveal = (box) => {
    const [x, y] = box.placed.map((value) => value * zoom);
    const [w, h] = [box.width * zoom, (box.open ? GROUP_HEAD : box.height) * zoom];
    const margin = 20;
    if (x < canvas.scrollLeft + margin || x + w > canvas.scrollLeft + canvas.clientWidth - margin) canvas.scrollLeft = x + w / 2 - canvas.clientWidth / 2;
    if (y < canvas.scrollTop + margin || y + h > canvas.scrollTop + canvas.clientHeight - margin) canvas.scrollTop = y + h / 2 - canvas.clientHeight / 2;
  };

  const toggle = (group) => {
    const [x, y] = group.placed;
    if (open.has(group.id)) open.delete(group.id);
    else open.add(group.id);
    focused = group.id;
    draw();
    // What was clicked stays where it was.
    const [newX, newY] = group.placed;
    canvas.scrollLeft += (newX - x) * zoom;
    canvas.scrollTop += (newY - y) * zoom;
    rove(group.id);
  };
  const choose = (id, focus = true) => {
    const box = boxOf(id);
    if (!box) return;
    const folded = ancestors(box).slice(1, -1).filter((group) => !open.has(group.id));
    folded.forEach((group) => open.add(group.id));
    chosen = id;
    if (folded.length > 0) draw();
    svg.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    elementOf(id)?.classList.add("chosen");
    highlight();
    show(box);
    rove(id, focus);
  };
  const close = () => {
    chosen = null;
    svg.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    highlight();
    showTop();
  };
  // The edges of what is chosen.
  const highlight = () => svg.querySelectorAll(".edge").forEach((edge) => edge.classList.toggle("lit", chosen !== null && (edge.dataset.from === chosen || edge.dataset.to === chosen)));

  const jump = (box, text) => {
    const button = element("button", { type: "button", className: "jump", textContent: text ?? box.node.name });
    button.addEventListener("click", () => choose(box.id));
    return element("li", {}, button);
  };
  const list = (name, boxes) => (boxes.length === 0 ? [] : [element("h4", { textContent: name }), element("ul", {}, ...boxes.slice(0, 12).map((box) => jump(box)), ...(boxes.length > 12 ? [element("li", { textContent: `and ${boxes.length - 12} more` })] : []))]);
  const rows = (pairs) => element("dl", {}, ...pairs.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
  const show = (box) => {
    const shut = element("button", { type: "button", className: "shut", textContent: "Close" });
    shut.addEventListener("click", close);
    const head = element("h3", { textContent: box.group ? box.name : box.node.name });
    detail.replaceChildren(shut, head, ...(box.group ? aboutGroup(box) : aboutNode(box)));
    detail.dataset.shown = box.id;
  };
  const aboutNode = (box) => {
    const { facts } = box.node;
    const pairs = [];
    for (let at = 0; at < facts.length; at += 2) pairs.push([graphText(facts[at]), graphText(facts[at + 1])]);
    return [rows(pairs), ...list("fed by", [...new Set(box.from)]), ...list("feeds", [...new Set(box.to)])];
  };
  const aboutGroup = (box) => {
    if (graph.pair) return [rows(aboutPair(box, graph))];
    const pairs = [["operators", String(box.operators)]];
    if (graph.execute_ms !== null) {
      pairs.unshift(["time", `${shownMs(box.ms)}, ${percent(box.share)} of Method::execute`]);
      for (const [name, ms] of Object.entries(box.parts).sort((a, b) => b[1] - a[1])) pairs.push([name, shownMs(ms)]);
      if (box.placedMs > 0) pairs.push(["of it", `${shownMs(box.placedMs)} in operators that no line of the model asked for, drawn here because of what they read and feed`]);
    }
    if (timesFaster(box) !== null) pairs.push(["compared", `${timesFaster(box).toFixed(2)}x: ${shownMs(box.before)} with ${graph.sides[0]}, ${shownMs(box.after)} with ${graph.sides[1]}`]);
    if (box.transposes > 0) pairs.push(["transposes", String(box.transposes)]);
    const found = sme2Of(box);
    if (found) pairs.push(["SME2", found.unknown === found.all ? `unknown for ${found.all} CONV and GEMM operators` : `${found.yes} of ${found.all} CONV and GEMM operators${found.unknown ? `, ${found.unknown} unknown` : ""}`]);
    return [rows(pairs)];
  };
  const showTop = () => {
    const all = [...tree.leaves.values()].filter((leaf) => leaf.node.node === "operator");
    const moved = all.some((leaf) => leaf.told > 0);
    const boxes = all.filter((leaf) => !moved || leaf.told > 0).sort((a, b) => b.moved - a.moved || (graph.pair ? b.after - a.after : b.ms - a.ms)).slice(0, 10);
    const timed = graph.execute_ms !== null;
    const items = boxes.map((box) => {
      const item = jump(box, box.node.name);
      const words = [graph.pair ? box.foot : timed ? `${shownMs(box.ms)}, ${percent(box.share)}` : "", box.node.module || (box.node.line && graphText(box.node.line))].filter(Boolean);
      item.append(element("div", { className: "quiet", textContent: words.join(" · ") }));
      return item;
    });
    detail.replaceChildren(element("h3", { textContent: moved ? "Largest differences" : timed ? "Costliest operators" : "First operators" }), element("ol", {}, ...items));
    detail.dataset.shown = "";
  };

  // The nearest box in a direction, what lies to the side counting twice.
  const beside = (box, [dx, dy]) => {
    const middle = ({ placed: [x, y], width, height, open: unfolded }) => [x + width / 2, y + (unfolded ? GROUP_HEAD : height) / 2];
    const [x, y] = middle(box);
    let best = null;
    for (const other of visible) {
      const [ox, oy] = middle(other);
      const [along, aside] = dx ? [(ox - x) * dx, Math.abs(oy - y)] : [(oy - y) * dy, Math.abs(ox - x)];
      if (other === box || along < 4) continue;
      const far = along + 2 * aside;
      if (!best || far < best[0]) best = [far, other];
    }
    return best?.[1] ?? null;
  };
  const inOrder = (box, direction) => {
    const leaves = visible.filter((one) => !one.open).sort((a, b) => graphFirst(a) - graphFirst(b));
    const at = leaves.indexOf(box);
    return leaves[at < 0 ? leaves.findIndex((one) => graphFirst(one) >= graphFirst(box)) : at + direction] ?? null;
  };
  const DIRECTIONS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const act = (box) => {
    if (box.group) {
      toggle(box);
      choose(box.id);
    } else choose(box.id);
  };
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const box = boxOf(focused);
    if (event.key === "Escape") {
      if (chosen !== null) close();
      else if (box?.parent?.parent) toggle(box.parent);
      else return;
    } else if (event.key === "+" || event.key === "=") zoomBy(1.25);
    else if (event.key === "-") zoomBy(0.8);
    else if (event.key === "0") fit();
    else if (!box || !box.placed) return;
    else if (event.key === "Enter" || event.key === " ") act(box);
    else if (DIRECTIONS[event.key]) {
      const next = beside(box, DIRECTIONS[event.key]);
      if (next) rove(next.id);
    } else if (event.key === "n" || event.key === "p") {
      const next = inOrder(box, event.key === "n" ? 1 : -1);
      if (next) rove(next.id);
    } else return;
    event.preventDefault();
  };

  // Drag to move, without taking clicks away.
  let grabbed = null, moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.pointerType === "mouse" && event.button === 0) grabbed = [event.clientX, event.clientY, canvas.scrollLeft, canvas.scrollTop];
  });
  window.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const [dx, dy] = [event.clientX - grabbed[0], event.clientY - grabbed[1]];
    moved ||= Math.hypot(dx, dy) > 4;
    if (moved) [canvas.scrollLeft, canvas.scrollTop] = [grabbed[2] - dx, grabbed[3] - dy];
  });
  window.addEventListener("pointerup", () => { grabbed = null; });
  canvas.addEventListener("click", (event) => {
    const box = event.target.closest(".box");
    if (box && !moved) act(boxOf(box.dataset.id));
  });
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("focusin", (event) => {
    const box = event.target.closest?.(".box");
    if (box && box.dataset.id !== focused) rove(box.dataset.id, false);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 0.85 : 1.18);
  }, { passive: false });

  const search = (again) => {
    const words = find(".graph-find").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) { find(".graph-found").textContent = ""; return; }
    const has = (text) => words.every((word) => text.toLowerCase().includes(word));
    const named = ({ node }) => has(`${node.name} ${node.module}`);
    const said = ({ node }) => has(`${node.name} ${node.category} ${node.module} ${node.facts.map(graphText).join(" ")}`);
    // What is called so before what only has it among its facts.
    const all = [...tree.leaves.values()];
    const matching = [...all.filter(named), ...all.filter((leaf) => !named(leaf) && said(leaf))];
    find(".graph-found").textContent = `${matching.length} found`;
    const at = matching.findIndex((leaf) => leaf.id === chosen);
    const next = matching[again ? (at + 1) % matching.length : 0];
    if (next) choose(next.id, false), reveal(next);
  };

  const save = () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([savedGraph(svg)], { type: "image/svg+xml" })), download: `${graph.experiment}_graph.svg` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const everything = () => {
    open = new Set([...tree.groups.keys()].filter((id) => id !== ""));
    draw();
  };
  const nothing = () => {
    open = new Set();
    draw();
    fitAcross();
  };
  const actions = { in: () => zoomBy(1.25), out: () => zoomBy(0.8), fit, unfold: everything, fold: nothing, save };
  graphSection.querySelectorAll("[data-graph]").forEach((button) => button.addEventListener("click", () => actions[button.dataset.graph]()));
  const restart = (keep) => {
    build(keep);
    draw();
    if (chosen !== null && boxOf(chosen)) choose(chosen, false);
    else close();
  };
  const offered = () => {
    const before = colourChoice.value;
    colourChoice.replaceChildren(...Object.entries(graphColourings).filter(([, way]) => way.has(graph)).map(([key, way]) => element("option", { value: key, textContent: way.name })));
    if ([...colourChoice.options].some((option) => option.value === before)) colourChoice.value = before;
  };
  experimentChoice.append(...graphs.map((one, place) => element("option", { value: String(place), textContent: one.label })));
  experimentChoice.addEventListener("change", () => {
    // Rows of one experiment are not those of another.
    chosen = chosen !== null && boxOf(chosen)?.group ? chosen : null;
    graph = graphs[Number(experimentChoice.value)];
    offered();
    restart(true);
  });
  colourChoice.addEventListener("change", draw);
  groupChoice.addEventListener("change", () => { chosen = null; restart(false); fitAcross(); });
  find(".graph-find").addEventListener("input", () => search(false));
  find(".graph-find").addEventListener("keydown", (event) => { if (event.key === "Enter") search(true); });
  changedChoice.addEventListener("change", () => { restart(false); fitAcross(); });
  if (graph.pair) {
    find(".graph-about").textContent = ABOUT_PAIR;
    find(".graph-changed").hidden = false;
    experimentChoice.parentElement.hidden = graphs.length === 1;
  }
  offered();
  restart(false);
  fitAcross();
  // Folded, it has no size yet.
  graphSection.querySelector("details.fold")?.addEventListener("toggle", fitAcross);
  // For whoever prints: the whole picture, without what scrolls.
  graphSection.graphSvg = () => savedGraph(svg);
};

if (graphSection && data.graph) graphView();
