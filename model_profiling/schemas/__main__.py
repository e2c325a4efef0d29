"""`python -m model_profiling.schemas [FOLDER]`: write every schema below FOLDER, or into the package for editors.

The build of a wheel runs it (hatch_build.py), and `make schema` in a clone.
"""

import sys
from pathlib import Path

from model_profiling.base import files
from model_profiling.schemas.contracts import shipped_schemas, text_of

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    for name, schema in shipped_schemas().items():
        files.write_text(folder / name, text_of(schema))
