"""`make schema`: write the schemas anew from the types."""

from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.schemas.contracts import CONTRACTS, json_schema

for contract in CONTRACTS:
    text = msgspec.json.format(msgspec.json.encode(json_schema(contract)), indent=2) + b"\n"
    files.write_bytes(Path(__file__).with_name(contract.file_name), text)
