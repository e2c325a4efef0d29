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
