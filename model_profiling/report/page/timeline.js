// The timeline: one execution of each experiment on a common axis, zoomed by buttons, keys, drag and ctrl + wheel.
// Two programs that are compared face each other: their operators are next to each other, with links between them.
const [NAME, CATEGORY, WHERE, START, DURATION, DEPTH, ROW, PART] = [0, 1, 2, 3, 4, 5, 6, 7];
const LANES = [10, 18, 34];
const LANE = LANES.reduce((a, b) => a + b);
const LINKS = 60;

const timelineView = (timeline, { timelines, labels, parts, linked }) => {
  const canvas = timeline.querySelector(".canvas");
  const experiments = Object.entries(timelines);
  const whole = Math.max(...experiments.flatMap(([, one]) => one.spans.map((span) => span[START] + span[DURATION])), 1);
  let view = [0, whole];
  let chosen = null;
  let drawn = null;

  const time = (us, step) => (step < 1000 ? `${+us.toFixed(1)} us` : `${+(us / 1000).toFixed(3)} ms`);
  const clamp = (start, end) => {
    const length = Math.min(Math.max(end - start, whole / 5000), whole);
    const from = Math.min(Math.max(start, 0), whole - length);
    view = [from, from + length];
    draw();
  };
  const zoom = (factor, centre = (view[0] + view[1]) / 2) =>
    clamp(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  const pan = (part) => clamp(view[0] + part * (view[1] - view[0]), view[1] + part * (view[1] - view[0]));

  const axis = (svg, width, height) => {
    const rough = (view[1] - view[0]) / Math.max(2, Math.floor(width / 110));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    for (let tick = Math.ceil(view[0] / step) * step; tick <= view[1]; tick += step) {
      const x = ((tick - view[0]) / (view[1] - view[0])) * width;
      svg.append(svgElement("line", { x1: x, x2: x, y1: 0, y2: height - 18 }));
      const last = x > width - 60;
      svg.append(svgElement("text", { class: "tick", x: last ? x - 3 : x + 3, y: height - 6, "text-anchor": last ? "end" : "start" }, time(tick, step)));
    }
  };

  const drawSpan = (svg, experiment, span, y, width) => {
    const scale = width / (view[1] - view[0]);
    const [x, w] = [(span[START] - view[0]) * scale, span[DURATION] * scale];
    if (x + w < 0 || x > width) return;
    const height = LANES[span[DEPTH]];
    const [fill, ink] = data.colours[span[CATEGORY]];
    const isChosen = chosen && chosen[0] === experiment && chosen[1] === span;
    const isCounterpart = chosen && parts && chosen[0] !== experiment && counterparts(...chosen).includes(span);
    const rect = svgElement("rect", {
      x, y, width: Math.max(w - (w > 3 ? 0.7 : 0), 0.7), height: height - 2,
      class: `${span[WHERE] === "runtime" ? "call" : ""} ${isChosen ? "chosen" : ""} ${isCounterpart ? "counterpart" : ""}`,
    });
    // A call contains its operators and has no category of its own to show.
    if (span[WHERE] !== "runtime") rect.setAttribute("fill", fill);
    Object.assign(rect.dataset, { experiment, row: span[ROW], depth: span[DEPTH], start: span[START], duration: span[DURATION] });
    rect.append(svgElement("title", {}, describe(experiment, span)));
    rect.addEventListener("click", () => choose(experiment, span));
    svg.append(rect);
    const [left, room] = [Math.max(x, 0) + 4, Math.min(x + w, width) - Math.max(x, 0) - 8];
    if (span[DEPTH] > 0 && room > 34) {
      const label = svgElement("text", { x: left, y: y + height / 2 + 3 }, span[NAME].slice(0, Math.floor(room / 6.2)));
      if (span[WHERE] !== "runtime") label.style.fill = ink;
      svg.append(label);
    }
  };

  const describe = (experiment, span) => {
    const total = timelines[experiment].spans.find((one) => one[DEPTH] === 0)?.[DURATION] ?? whole;
    const share = ((span[DURATION] / total) * 100).toFixed(1);
    return `${span[NAME]} (${span[CATEGORY]}, ${span[WHERE]}) in ${labels[experiment] ?? experiment}: ${shownMs(span[DURATION] / 1000)}, ${share} % of this execution, from ${shownMs(span[START] / 1000)}`;
  };

  // Operators of each part, by side; what a call itself takes is no operator.
  const members = new Map();
  if (parts) for (const [name, { spans }] of experiments) for (const span of spans)
    if (span[WHERE] !== "runtime" && span[PART] >= 0) {
      if (!members.has(span[PART])) members.set(span[PART], { before: [], after: [] });
      members.get(span[PART])[name].push(span);
    }
  const counterparts = (experiment, span) =>
    (span[WHERE] !== "runtime" && members.get(span[PART])?.[experiment === "before" ? "after" : "before"]) || [];

  const describePart = (experiment, span) => {
    const [name, times, what] = parts[span[PART]] ?? [];
    if (name === undefined) return "";
    const others = counterparts(experiment, span);
    const listed = others.slice(0, 4).map((one) => `${one[NAME]} ${shownMs(one[DURATION] / 1000)}`).join(", ");
    const more = others.length > 4 ? ` and ${others.length - 4} more` : "";
    const there = experiment === "before" ? "Now" : "Before";
    const counterpart = span[WHERE] === "runtime" ? "" : others.length ? ` ${there}: ${listed}${more}.` : ` ${there}: nothing.`;
    return `. ${name}: ${times}; ${what || "the same operators"}.${counterpart}`;
  };

  const choose = (experiment, span) => {
    chosen = [experiment, span];
    timeline.querySelector(".detail").textContent = describe(experiment, span) + (parts ? describePart(experiment, span) : "");
    const end = span[START] + span[DURATION];
    if (span[START] < view[0] || end > view[1]) pan((span[START] + end - view[0] - view[1]) / 2 / (view[1] - view[0]));
    else draw();
  };

  const step = (direction) => {
    const all = experiments.flatMap(([name, one]) => one.spans.filter((span) => span[WHERE] !== "runtime").map((span) => [name, span]));
    const now = chosen ? all.findIndex(([name, span]) => name === chosen[0] && span === chosen[1]) : direction > 0 ? -1 : all.length;
    const next = all[now + direction];
    if (next) choose(...next);
  };

  // The top of each lane of an experiment; of two that face each other, operators are below and above the links.
  const lanesOf = (index) => {
    const top = index * (LANE + (parts ? LINKS : 26)) + 20;
    return parts && index === 1 ? [top + LANES[2] + LANES[1], top + LANES[2], top] : [top, top + LANES[0], top + LANES[0] + LANES[1]];
  };

  const drawLinks = (svg, number, width, isChosen) => {
    const scale = width / (view[1] - view[0]);
    const { before, after } = members.get(number) ?? { before: [], after: [] };
    if (!before.length || !after.length) return;
    for (let n = 0; n < Math.max(before.length, after.length); n += 1) {
      const [one, other] = [before[Math.min(n, before.length - 1)], after[Math.min(n, after.length - 1)]];
      const ends = [one, other].map((span) => {
        const x = (span[START] - view[0]) * scale;
        return [x, x + Math.max(span[DURATION] * scale, 1)];
      });
      if (ends.every(([, x]) => x < 0) || ends.every(([x]) => x > width)) continue;
      const [top, bottom] = [lanesOf(0)[one[DEPTH]] + LANES[one[DEPTH]] - 2, lanesOf(1)[other[DEPTH]]];
      const d = `M${ends[0][0]} ${top}L${ends[0][1]} ${top}L${ends[1][1]} ${bottom}L${ends[1][0]} ${bottom}Z`;
      svg.append(svgElement("path", { d, class: `link ${parts[number][3]} ${isChosen ? "lit" : ""}`, "data-part": number }));
    }
  };

  const draw = () => {
    const width = canvas.clientWidth;
    const height = experiments.length * (LANE + 26) + 26 + (parts ? LINKS - 12 : 0);
    const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    axis(svg, width, height);
    if (parts) linked.forEach((number) => drawLinks(svg, number, width, false));
    if (parts && chosen && chosen[1][WHERE] !== "runtime") drawLinks(svg, chosen[1][PART], width, true);
    experiments.forEach(([name, one], index) => {
      const lanes = lanesOf(index);
      const y = parts && index === 1 ? lanes[0] + LANES[0] + 11 : lanes[0] - 5;
      svg.append(svgElement("text", { x: 6, y }, `${labels[name] ?? name}, execution ${one.execution}`));
      one.spans.forEach((span) => drawSpan(svg, name, span, lanes[span[DEPTH]], width));
    });
    canvas.replaceChildren(svg);
    [canvas.dataset.start, canvas.dataset.end] = view;
    drawn = width;
  };

  const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25), all: () => clamp(0, whole) };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };
  timeline.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => actions[button.dataset.do]()));
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
    else if (event.key === "c" && parts && chosen) {
      const [other] = counterparts(...chosen);
      if (other) choose(chosen[0] === "before" ? "after" : "before", other);
    }
    else if (keys[event.key]) actions[keys[event.key]]();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const at = view[0] + ((event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth) * (view[1] - view[0]);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
  }, { passive: false });
  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => { grabbed = event.clientX; });
  window.addEventListener("pointerup", () => { grabbed = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed === null || Math.abs(event.clientX - grabbed) < 2) return;
    pan((grabbed - event.clientX) / canvas.clientWidth);
    grabbed = event.clientX;
  });
  // It reports the first size, too, which is drawn already.
  new ResizeObserver(() => { if (canvas.clientWidth && canvas.clientWidth !== drawn) draw(); }).observe(canvas);
  draw();
};

for (const section of document.querySelectorAll("section.timeline")) {
  const shown = data.timelines[section.id];
  if (Object.keys(shown.timelines).length === 0) continue;
  section.querySelector(".keys span").hidden = !shown.parts;
  timelineView(section, shown);
  section.querySelector(".legend").append(
    ...Object.entries(data.colours).filter(([name]) => name !== "Runtime").map(([name, [colour]]) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colour;
      return element("li", {}, swatch, name);
    }),
  );
}
