"""Colours of the pictures: told apart with deuteranopia, readable on paper, on white and on black."""

from dataclasses import dataclass

# Okabe and Ito's palette, which was made for all kinds of colour vision; the first two are the accelerated categories.
CATEGORY_COLOURS = {
    "CONV": "#0072B2",
    "GEMM": "#56B4E9",
    "Data Movement": "#E69F00",
    "Elementwise": "#CC79A7",
    "Other": "#999999",
    "Runtime": "#009E73",
}
# What to write with on top of each of them.
CATEGORY_INKS = {"CONV": "#ffffff"}
INK = "#111111"
BEFORE, AFTER = "#999999", "#0072B2"


@dataclass(frozen=True)
class Theme:
    """`page` leaves the colours to the page's own style, so that one picture serves light and dark."""

    name: str
    background: str | None
    text: str
    quiet: str
    grid: str
    # What the picture lies on, for lines that part two colours.
    paper: str
    after: str = AFTER


LIGHT = Theme("light", "#ffffff", "#1b1b1f", "#5c5c66", "#e3e3e8", "#ffffff")
DARK = Theme("dark", "#17181c", "#ececf1", "#a9aab5", "#34363f", "#17181c", "#3fa7e0")
PAGE = Theme("page", None, "var(--text)", "var(--quiet)", "var(--grid)", "var(--paper)", "var(--after)")
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def ink_on(category: str) -> str:
    return CATEGORY_INKS.get(category, INK)


def config(theme: Theme) -> dict[str, object]:
    """Vega-Lite's config for a theme."""
    font = "Liberation Sans, Arial, Helvetica, sans-serif"
    quiet = {"labelColor": theme.quiet, "titleColor": theme.quiet, "labelFont": font, "titleFont": font}
    axis = {
        **quiet,
        "gridColor": theme.grid,
        "domainColor": theme.quiet,
        "tickColor": theme.quiet,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "background": theme.background,
        "font": font,
        "view": {"stroke": None},
        "axis": axis,
        "legend": {**quiet, "labelFontSize": 11, "titleFontSize": 11, "symbolType": "square", "columnPadding": 22},
        "title": {
            "color": theme.text,
            "subtitleColor": theme.quiet,
            "fontSize": 14,
            "subtitleFontSize": 11,
            "anchor": "start",
            "font": font,
            "subtitleFont": font,
            "offset": 12,
        },
        "text": {"color": theme.text, "font": font, "fontSize": 11},
    }
