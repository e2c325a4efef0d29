"""Colours of the pictures: told apart with deuteranopia, readable on paper, on white and on black."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

# Okabe and Ito's palette, which was made for all kinds of colour vision; the first two are the accelerated categories.
# Other's grey is darker than theirs: with deuteranopia, theirs looks like Elementwise.
CATEGORY_COLOURS = {
    "CONV": "#0072B2",
    "GEMM": "#56B4E9",
    "Data Movement": "#E69F00",
    "Elementwise": "#CC79A7",
    "Other": "#5f6368",
    "Runtime": "#009E73",
}
# What to write with on top of each of them. These whites differ from the paper's, which a page may darken.
WHITE, INK = "#fdfdfd", "#111111"
CATEGORY_INKS = {"CONV": WHITE, "Other": WHITE}
BEFORE = "#999999"
# As the graph of two programs has them; beside each stands a sign.
FASTER, SLOWER = "#0072B2", "#C24E00"


@dataclass(frozen=True)
class Theme:
    """`paper` is what the picture lies on; `after` is the accelerated side, near CONV's blue but never equal to it."""

    name: str
    text: str
    quiet: str
    grid: str
    paper: str
    after: str


LIGHT = Theme("light", text="#1b1b1f", quiet="#5c5c66", grid="#e3e3e8", paper="#ffffff", after="#0072b3")
DARK = Theme("dark", text="#ececf1", quiet="#a9aab5", grid="#34363f", paper="#17181c", after="#3fa7e0")
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def for_page(svg: str) -> str:
    """Leave a light picture's colours to the page's style, so that one picture serves light, dark and print."""
    for name, attribute in itertools.product(("text", "quiet", "grid", "paper", "after"), ("fill", "stroke")):
        svg = svg.replace(f'{attribute}="{getattr(LIGHT, name)}"', f'{attribute}="var(--{name})"')
    return svg


def colour_scale(categories: Iterable[str]) -> dict[str, list[str]]:
    """Return Vega-Lite's scale of the categories that occur, in their usual order: a legend shows no others."""
    used = set(categories)
    shown = {name: colour for name, colour in CATEGORY_COLOURS.items() if name in used}
    return {"domain": list(shown), "range": list(shown.values())}


def ink_on(category: str) -> str:
    return CATEGORY_INKS.get(category, INK)


def config(theme: Theme) -> dict[str, object]:
    """Return Vega-Lite's config for a theme."""
    font = "Liberation Sans, Arial, Helvetica, sans-serif"
    quiet = {"labelColor": theme.quiet, "titleColor": theme.quiet, "labelFont": font, "titleFont": font}
    small = {**quiet, "labelFontSize": 11, "titleFontSize": 11}
    lines = {"gridColor": theme.grid, "domainColor": theme.quiet, "tickColor": theme.quiet}
    title = {"color": theme.text, "font": font, "fontSize": 14, "anchor": "start", "offset": 12}
    return {
        "background": theme.paper,
        "font": font,
        "view": {"stroke": None},
        "axis": {**small, **lines, "titleFontWeight": "normal"},
        "legend": {**small, "symbolType": "square", "columnPadding": 22},
        "title": {**title, "subtitleColor": theme.quiet, "subtitleFont": font, "subtitleFontSize": 11},
        "text": {"color": theme.text, "font": font, "fontSize": 11},
    }
