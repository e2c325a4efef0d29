"""The native runner: its source, how it is built, which CPU features it can mask, how it is spoken to."""
