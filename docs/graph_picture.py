"""The picture in docs/graph.md: `python docs/graph_picture.py RUN`, with a run of squeeze_sam in fp16."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from model_profiling.report.drawing.vega import compress_png  # noqa: E402
from sme2_kit import Run  # noqa: E402
from tests.helpers.chromium import chromium  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "graph.png"


# On the way from the encoder to the decoder: no line of the model asked for it.
CHOSEN = "Transpose (ND, X16) #3,"


def main(run: str) -> None:
    page = Run.open(run).graph()
    with chromium() as tab:
        tab.colours("light")
        tab.open(page, 1280, 860)
        box = f"[...document.querySelectorAll('.box')].find((one) => one.ariaLabel.startsWith({json.dumps(CHOSEN)}))"
        tab.value(f"{box}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))")
        tab.resize(1280, 860)
        PICTURE.write_bytes(compress_png(tab.picture()))


if __name__ == "__main__":
    main(sys.argv[1])
