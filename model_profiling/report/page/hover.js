// What a mark of a picture stands for is its label; as its title, it is shown where the mouse is.
for (const mark of document.querySelectorAll("figure svg [aria-roledescription='point'][aria-label]"))
  mark.append(svgElement("title", {}, mark.getAttribute("aria-label")));
