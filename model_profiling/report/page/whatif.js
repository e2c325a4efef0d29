// What if: divide each category's time by its slider and add up. The same arithmetic as analysis/whatif.py.
const whatif = document.getElementById("whatif");
const speedups = {};

const predict = (experiment) => {
  const parts = Object.entries(experiment.categories).map(([name, ms]) => [name, ms / (speedups[name] ?? 1)]);
  const total = parts.reduce((sum, [, ms]) => sum + ms, 0);
  return { parts, total, ratio: total > 0 ? experiment.execute_ms / total : 1 };
};

const stackedBar = (label, parts, longest) => {
  const total = parts.reduce((sum, [, ms]) => sum + ms, 0);
  const bar = element("div", { className: "bar" });
  for (const [name, ms] of parts) {
    const share = total > 0 ? ms / total : 0;
    const part = element("span", { textContent: ms / longest > 0.06 ? `${(share * 100).toFixed(0)}%` : "", title: name });
    [part.style.background, part.style.color] = data.colours[name];
    part.style.width = `${longest > 0 ? (ms / longest) * 100 : 0}%`;
    part.dataset.category = name;
    part.dataset.share = share;
    bar.append(part);
  }
  return [element("div", { className: "label", textContent: `${label}: ${shownMs(total)}` }), bar];
};

const redraw = () => {
  const experiment = data.experiments[whatif.querySelector(".experiment").value];
  const { parts, total, ratio } = predict(experiment);
  const next = parts.reduce((most, part) => (part[1] > most[1] ? part : most));
  const outcome = whatif.querySelector(".outcome");
  const latency = experiment.latency_ms === null ? "" : ` (median latency ${shownMs(experiment.latency_ms)} would be about ${shownMs(experiment.latency_ms / ratio)})`;
  const share = total > 0 ? (next[1] / total) * 100 : 0;
  outcome.textContent = `Predicted: ${shownMs(total)}, ${ratio.toFixed(2)}x faster${latency}. Largest part then: ${next[0]}, ${share.toFixed(1)} %.`;
  outcome.dataset.ms = total;
  outcome.dataset.ratio = ratio;
  outcome.dataset.next = next[0];
  const now = Object.entries(experiment.categories);
  const longest = Math.max(total, now.reduce((sum, [, ms]) => sum + ms, 0));
  whatif.querySelector(".bars").replaceChildren(...stackedBar("now, traced", now, longest), ...stackedBar("predicted", parts, longest));
};

const addSlider = (name) => {
  const shown = element("output", { textContent: "1.0x" });
  const input = element("input", { type: "range", min: 1, max: 20, step: 0.1, value: 1, id: `whatif-${name}` });
  input.dataset.category = name;
  input.addEventListener("input", () => {
    speedups[name] = Number(input.value);
    shown.textContent = `${speedups[name].toFixed(1)}x`;
    input.setAttribute("aria-valuetext", `${name} ${shown.textContent} faster`);
    redraw();
  });
  const swatch = element("span", { className: "swatch" });
  swatch.style.background = data.colours[name][0];
  whatif.querySelector(".sliders").append(element("label", { htmlFor: input.id }, swatch, name), input, shown);
};

if (whatif) {
  const choice = whatif.querySelector(".experiment");
  choice.append(...Object.keys(data.experiments).map((name) => element("option", { textContent: data.labels[name] ?? name, value: name })));
  choice.value = data.of_interest[0];
  const used = new Set(Object.values(data.experiments).flatMap((e) => Object.entries(e.categories).filter(([, ms]) => ms > 0).map(([name]) => name)));
  Object.keys(data.colours).filter((name) => used.has(name)).forEach(addSlider);
  choice.addEventListener("change", redraw);
  whatif.querySelector(".reset").addEventListener("click", () => {
    for (const input of whatif.querySelectorAll(".sliders input")) {
      input.value = 1;
      input.dispatchEvent(new Event("input"));
    }
  });
  redraw();
}
