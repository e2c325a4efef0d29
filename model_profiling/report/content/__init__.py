"""What a report says, section by section, as blocks that every format can draw."""
