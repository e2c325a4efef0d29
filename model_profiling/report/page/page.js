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
// Sorting and filtering of tables that can be long. The rows are in the page already; they are only moved and hidden.
const sortValue = (cell) => {
  if (!cell.classList.contains("number")) return cell.textContent.toLowerCase();
  // What is not known comes last when the largest comes first.
  return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
};

const sortRows = (holders, column, sign, rowOf) => {
  const keyed = holders.map((holder) => [sortValue(rowOf(holder).cells[column]), holder]);
  keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
  return keyed.map(([, holder]) => holder);
};

// Each body is one row, or a group with its members: groups are sorted by their sums, members inside their group.
const sortBy = (block, column) => {
  const headers = [...block.querySelectorAll("th")];
  const numeric = headers[column].classList.contains("number");
  const now = headers[column].getAttribute("aria-sort");
  const direction = now === "none" ? (numeric ? "descending" : "ascending") : now === "ascending" ? "descending" : "ascending";
  headers.forEach((header) => header.setAttribute("aria-sort", "none"));
  headers[column].setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const bodies = [...block.querySelectorAll("tbody")];
  for (const body of bodies) body.append(...sortRows([...body.querySelectorAll("tr.member")], column, sign, (row) => row));
  block.querySelector("table").append(...sortRows(bodies, column, sign, (body) => body.rows[0]));
};

const categoryColumn = (block) => [...block.querySelectorAll("th")].findIndex((header) => header.textContent === "category");
const operatorRows = (block) => [...block.querySelectorAll("tbody tr:not(.group)")];

const filterRows = (block) => {
  const words = block.querySelector(".filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const category = block.querySelector(".category")?.value ?? "";
  const column = categoryColumn(block);
  const rows = operatorRows(block);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word)) || (category !== "" && row.cells[column].textContent !== category);
  }
  for (const group of block.querySelectorAll("tr.group"))
    group.hidden = [...group.parentElement.querySelectorAll("tr.member")].every((row) => row.hidden);
  // While one looks for something, groups are unfolded.
  block.classList.toggle("filtering", words.length > 0 || category !== "");
  block.querySelector(".count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
};

for (const block of document.querySelectorAll(".table-block:has(.filter)")) {
  const choice = block.querySelector(".category");
  if (choice) {
    const column = categoryColumn(block);
    const categories = new Set(operatorRows(block).map((row) => row.cells[column].textContent));
    choice.append(...[...categories].sort().map((name) => element("option", { textContent: name })));
    choice.addEventListener("change", () => filterRows(block));
  }
  block.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => sortBy(block, column)));
  block.querySelector(".filter").addEventListener("input", () => filterRows(block));
  filterRows(block);
}
// Long tables show ten rows until one asks for all; while one looks for something, every row counts.
for (const button of document.querySelectorAll(".all-rows"))
  button.addEventListener("click", () => {
    button.closest(".table-block").classList.add("whole");
    button.remove();
  });
// What a mark of a picture stands for is its label; as its title, it is shown where the mouse is.
for (const mark of document.querySelectorAll("figure svg [aria-roledescription='point'][aria-label]"))
  mark.append(svgElement("title", {}, mark.getAttribute("aria-label")));
// What did not change is hidden on request. By a class: `:has()` is asked anew for every row when a window changes its size.
for (const box of document.querySelectorAll(".hide-minor"))
  box.addEventListener("change", () => box.closest(".tree").classList.toggle("without-minor", box.checked));
// Light and dark follow the system until the button says otherwise.
const theme = document.getElementById("theme");
let dark = matchMedia("(prefers-color-scheme: dark)").matches;
const label = () => { theme.textContent = dark ? "light" : "dark"; };
theme.addEventListener("click", () => {
  dark = !dark;
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  label();
});
label();
