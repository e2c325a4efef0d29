"""The shapes of the kit's JSON files, for other programs: one JSON Schema per kind of file, made from the types."""
