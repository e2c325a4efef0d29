"""The automation playbooks: one text each, read here, installed where assistants look, and held to a gate."""
