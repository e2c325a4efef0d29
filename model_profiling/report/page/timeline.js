// The timeline: one execution of each experiment on a common axis, zoomed by buttons, keys, drag and ctrl + wheel.
const timeline = document.getElementById("timeline");
const [NAME, CATEGORY, WHERE, START, DURATION, DEPTH, ROW] = [0, 1, 2, 3, 4, 5, 6];
const LANES = [10, 18, 34];

const timelineView = () => {
  const canvas = timeline.querySelector(".canvas");
  const experiments = Object.entries(data.timelines);
  const whole = Math.max(...experiments.flatMap(([, one]) => one.spans.map((span) => span[START] + span[DURATION])), 1);
  let view = [0, whole];
  let chosen = null;

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
      svg.append(svgElement("text", { class: "tick", x: x + 3, y: height - 6 }, time(tick, step)));
    }
  };

  const drawSpan = (svg, experiment, span, y, width) => {
    const scale = width / (view[1] - view[0]);
    const [x, w] = [(span[START] - view[0]) * scale, span[DURATION] * scale];
    if (x + w < 0 || x > width) return;
    const height = LANES[span[DEPTH]];
    const [fill, ink] = data.colours[span[CATEGORY]];
    const isChosen = chosen && chosen[0] === experiment && chosen[1] === span;
    const rect = svgElement("rect", {
      x, y, width: Math.max(w - (w > 3 ? 0.7 : 0), 0.7), height: height - 2,
      class: `${span[WHERE] === "runtime" ? "call" : ""} ${isChosen ? "chosen" : ""}`,
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
    const total = data.timelines[experiment].spans.find((one) => one[DEPTH] === 0)?.[DURATION] ?? whole;
    const share = ((span[DURATION] / total) * 100).toFixed(1);
    return `${span[NAME]} (${span[CATEGORY]}, ${span[WHERE]}) in ${data.labels[experiment] ?? experiment}: ${shownMs(span[DURATION] / 1000)}, ${share} % of this execution, from ${shownMs(span[START] / 1000)}`;
  };

  const choose = (experiment, span) => {
    chosen = [experiment, span];
    timeline.querySelector(".detail").textContent = describe(experiment, span);
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

  const draw = () => {
    const width = canvas.clientWidth;
    const height = experiments.length * (LANES.reduce((a, b) => a + b) + 26) + 26;
    const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    axis(svg, width, height);
    experiments.forEach(([name, one], index) => {
      const top = index * (LANES.reduce((a, b) => a + b) + 26) + 20;
      svg.append(svgElement("text", { x: 6, y: top - 5 }, `${data.labels[name] ?? name}, execution ${one.execution}`));
      const lanes = [top, top + LANES[0], top + LANES[0] + LANES[1]];
      one.spans.forEach((span) => drawSpan(svg, name, span, lanes[span[DEPTH]], width));
    });
    canvas.replaceChildren(svg);
    [canvas.dataset.start, canvas.dataset.end] = view;
  };

  const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25), all: () => clamp(0, whole) };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };
  timeline.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => actions[button.dataset.do]()));
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
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
  new ResizeObserver(draw).observe(canvas);
  draw();
};

if (timeline && Object.keys(data.timelines).length > 0) {
  timelineView();
  timeline.querySelector(".legend").append(
    ...Object.entries(data.colours).filter(([name]) => name !== "Runtime").map(([name, [colour]]) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colour;
      return element("li", {}, swatch, name);
    }),
  );
}
