"""Try the fix: variants chosen by the program, exported, measured side by side, checked and ranked."""
