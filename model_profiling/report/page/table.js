// Sorting and filtering of the operator tables. The rows are in the page already; they are only moved and hidden.
const data = JSON.parse(document.getElementById("data").textContent);
const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

const sortValue = (cell) => {
  if (!cell.classList.contains("number")) return cell.textContent.toLowerCase();
  // What is not known comes last when the largest comes first.
  return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
};

const sortBy = (block, column) => {
  const headers = [...block.querySelectorAll("th")];
  const numeric = headers[column].classList.contains("number");
  const now = headers[column].getAttribute("aria-sort");
  const direction = now === "none" ? (numeric ? "descending" : "ascending") : now === "ascending" ? "descending" : "ascending";
  headers.forEach((header) => header.setAttribute("aria-sort", "none"));
  headers[column].setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const body = block.querySelector("tbody");
  const rows = [...body.rows].map((row) => [sortValue(row.cells[column]), row]);
  rows.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
  body.append(...rows.map(([, row]) => row));
};

const categoryColumn = (block) => [...block.querySelectorAll("th")].findIndex((header) => header.textContent === "category");

const filterRows = (block) => {
  const words = block.querySelector(".filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const category = block.querySelector(".category").value;
  const column = categoryColumn(block);
  const rows = [...block.querySelector("tbody").rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word)) || (category !== "" && row.cells[column].textContent !== category);
  }
  block.querySelector(".count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
};

for (const block of document.querySelectorAll('[data-table="operators"]')) {
  const column = categoryColumn(block);
  const categories = new Set([...block.querySelector("tbody").rows].map((row) => row.cells[column].textContent));
  block.querySelector(".category").append(...[...categories].sort().map((name) => element("option", { textContent: name })));
  block.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => sortBy(block, column)));
  block.querySelector(".filter").addEventListener("input", () => filterRows(block));
  block.querySelector(".category").addEventListener("change", () => filterRows(block));
}
