"""`sme2-kit`: one small file per subcommand; the work is elsewhere."""
