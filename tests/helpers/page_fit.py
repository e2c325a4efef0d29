"""What of an open page does not fit: wider than the window, tables that hide columns, text outside its picture."""

from tests.helpers.chromium import Tab

_OUTSIDE = """
[...document.querySelectorAll("figure svg")].filter((svg) => svg.getBoundingClientRect().width > 0).flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1);
  }).map((text) => text.textContent);
})
"""
_OVERPRINTED = """
[...document.querySelectorAll("figure svg")].filter((svg) => svg.getBoundingClientRect().width > 0).flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].filter(
    // The box around turned text is larger than the text.
    (text) => text.textContent.trim() && !/rotate\\((?!0\\))/.test(text.getAttribute("transform") ?? "")).map(
    (text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  return boxes.flatMap(([name, a], at) => boxes.slice(at + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2
  ).map(([other]) => `${name} / ${other}`));
})
"""
_HIDDEN = """
[...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => box.getAttribute("aria-label"))
"""


def misfits(tab: Tab, width: int) -> list[str]:
    """Return what is clipped, overprinted or wider than a window of `width`; on a phone, tables may scroll."""
    tab.resize(width)
    found = [f"{text} is outside its picture" for text in tab.value(_OUTSIDE)]
    found += [f"{texts} overprint" for texts in tab.value(_OVERPRINTED)]
    if tab.value("document.documentElement.scrollWidth > innerWidth"):
        found.append("the page is wider than the window")
    return found + ([f"the {name} hides columns" for name in tab.value(_HIDDEN)] if width >= 1000 else [])
