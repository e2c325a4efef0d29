// What all scripts of a page share.
const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// As the report writes times: microseconds where milliseconds would read 0.00.
const shownMs = (ms) => (ms > 0 && ms < 0.01 ? `${(ms * 1000).toFixed(1)} us` : `${ms.toFixed(3)} ms`);
const svgElement = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

// Folded sections open when one goes to them, and all for paper.
const unfold = (root) => root?.querySelectorAll(":scope > details.fold").forEach((fold) => { fold.open = true; });
const follow = () => unfold(document.getElementById(decodeURIComponent(location.hash.slice(1))));
window.addEventListener("hashchange", follow);
window.addEventListener("beforeprint", () => document.querySelectorAll("details.fold").forEach((fold) => { fold.open = true; }));
document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", () => setTimeout(follow)));
follow();
