"""Try the fix: variants chosen by the advice, exported, measured side by side, checked and ranked."""
