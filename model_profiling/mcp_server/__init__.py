"""The kit's verbs as typed tools over the Model Context Protocol, so that an assistant need not parse text."""
