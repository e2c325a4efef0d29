// What did not change is hidden on request. By a class: `:has()` is asked anew for every row when a window changes its size.
for (const box of document.querySelectorAll(".hide-minor"))
  box.addEventListener("change", () => box.closest(".tree").classList.toggle("without-minor", box.checked));
