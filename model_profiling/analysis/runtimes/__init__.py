"""Other runtimes' profiles as the kit's own, so that programs are compared by module and line."""
