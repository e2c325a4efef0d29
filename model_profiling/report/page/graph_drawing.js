// The picture of what is unfolded: boxes, edges and groups as SVG, and the same as a file.
const drawGraph = ({ tree, graph, colouring, chosen }) => {
  const visible = [];
  const described = (box) => {
    const time = graph.execute_ms === null ? "" : graph.pair ? `, ${pairFoot(box, graph)}` : `, ${shownMs(box.ms)}, ${percent(box.share)}`;
    if (box.group) return `${box.name}: ${box.operators} operators${time}; Enter ${box.open ? "folds" : "unfolds"}`;
    return `${box.node.name}${box.under ? ` in ${box.under}` : ""}, ${box.node.category}${time}`;
  };

  const depthOf = (box) => ancestors(box).length;
  const outline = (box, x, y) => {
    const { width: w, height: h } = box;
    // Transposes have slanted sides: they move data and compute nothing.
    if (box.node?.transpose) return svgElement("polygon", { points: `${x + 9},${y} ${x + w},${y} ${x + w - 9},${y + h} ${x},${y + h}` });
    const round = box.node && box.node.node !== "operator" ? Math.min(h / 2, 16) : box.group ? 8 : 4;
    return svgElement("rect", { x, y, width: w, height: h, rx: round });
  };

  const drawBox = (layer, box, x, y) => {
    const kinds = { group: box.group, unfolded: box.open, nested: box.open && depthOf(box) % 2 === 0, transpose: box.node?.transpose, portable: box.node?.where === "portable", end: box.node && box.node.node !== "operator", "only-before": box.node?.side === "before", "only-after": box.node?.side === "after", chosen: box.id === chosen };
    const names = Object.keys(kinds).filter((name) => kinds[name]);
    const g = svgElement("g", { class: ["box", ...names].join(" "), role: "button", tabindex: "-1", "aria-label": described(box) });
    Object.assign(g.dataset, { id: box.id });
    if (box.group) g.setAttribute("aria-expanded", String(box.open));
    const shape = outline(box, x, y);
    const colours = box.open ? null : colouring.colour(box, tree);
    if (colours) shape.setAttribute("fill", colours[0]);
    g.append(shape);
    if (box.open) g.append(svgElement("text", { x: x + GROUP_PAD, y: y + 20, class: "title" }, box.headline));
    else drawLines(g, box, x, y, colours);
    box.placed = [x, y];
    visible.push(box);
    layer.append(g);
    if (box.open) drawInside(layer, box, x, y);
  };

  const drawLines = (g, box, x, y, colours) => {
    const lines = [[`${box.group ? "▸ " : ""}${box.title}`, "title"], [box.subtitle, "sub"], [box.foot, "sub"]].filter(([text]) => text);
    const top = y + (box.height - lines.length * 15 - (box.group ? 4 : 0)) / 2 + 11.5;
    lines.forEach(([text, kind], place) => {
      const line = svgElement("text", { x: x + box.width / 2, y: top + place * 15, class: kind, "text-anchor": "middle" }, text);
      if (colours) line.setAttribute("fill", colours[1]);
      g.append(line);
    });
    if (box.group && box.ms > 0 && !colouring.plain) stripe(g, box, x, y);
  };

  // The categories in a folded group, along its lower edge.
  const stripe = (g, box, x, y) => {
    let at = x + 8;
    const whole = Object.values(box.parts).reduce((sum, ms) => sum + Math.max(ms, 0), 0);
    for (const [name, ms] of Object.entries(box.parts)) {
      const width = (Math.max(ms, 0) / whole) * (box.width - 16);
      if (width < 0.5) continue;
      g.append(svgElement("rect", { x: at, y: y + box.height - 8, width, height: 4, fill: (data.colours[name] ?? PLAIN)[0], class: "part" }));
      at += width;
    }
  };

  const drawInside = (layer, group, left, top) => {
    for (const link of group.links.values()) {
      if (!link.points) continue;
      const path = link.points.map(({ x, y }) => [x + left, y + top]);
      const only = link.sides.size === 1 ? ["", " before", " after"][[...link.sides][0]] : "";
      const line = svgElement("path", { d: smooth(path), class: `edge${link.order ? " order" : link.through ? " through" : ""}${only}`, "marker-end": "url(#graph-arrow)" });
      Object.assign(line.dataset, { from: link.from.id, to: link.to.id });
      line.append(svgElement("title", {}, link.order ? "execution order; what is read is not known" : link.through ? "through operators that did not change" : `${only && `${ONLY[only.trim()]}: `}${link.tensors.length > 1 ? `${link.tensors.length} tensors: ` : ""}${[...new Set(link.tensors)].slice(0, 3).join(", ")}`));
      layer.append(line);
    }
    for (const child of group.children) drawBox(layer, child, left + child.x, top + child.y);
  };

  const smooth = (points) => {
    if (points.length < 3) return `M${points.map((point) => point.map((value) => value.toFixed(1))).join("L")}`;
    const middle = points.slice(1, -1).map((point, place) => {
      const next = points[place + 2];
      const end = place === points.length - 3 ? next : [(point[0] + next[0]) / 2, (point[1] + next[1]) / 2];
      return `Q${[...point, ...end].map((value) => value.toFixed(1)).join(" ")}`;
    });
    return `M${points[0].map((value) => value.toFixed(1)).join(" ")}${middle.join("")}`;
  };

  const [width, height] = [tree.root.width, tree.root.height];
  const svg = svgElement("svg", { viewBox: `0 0 ${width.toFixed(0)} ${height.toFixed(0)}`, role: "group", "aria-label": `Graph of ${graph.label}; arrow keys move, Enter unfolds or shows, Escape closes`, "aria-roledescription": "graph" });
  const arrow = svgElement("marker", { id: "graph-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" });
  arrow.append(svgElement("path", { d: "M0 0.5L8 4L0 7.5z", class: "tip" }));
  const definitions = svgElement("defs", {});
  definitions.append(arrow);
  svg.append(definitions);
  drawInside(svg, tree.root, 0, 0);
  return { svg, visible };
};

// A file of its own: every style is written into it, so that it looks the same everywhere.
const savedGraph = (svg) => {
  const copy = svg.cloneNode(true);
  const originals = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((made, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "text-decoration-line", "opacity"]) made.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["tabindex", "role", "aria-label", "aria-expanded", "data-id"]) made.removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "Liberation Sans, Arial, Helvetica, sans-serif");
  [copy.style.background] = [getComputedStyle(document.body).backgroundColor];
  copy.setAttribute("width", svg.viewBox.baseVal.width);
  copy.setAttribute("height", svg.viewBox.baseVal.height);
  return new XMLSerializer().serializeToString(copy);
};
