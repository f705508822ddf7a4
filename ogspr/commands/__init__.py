"""What the subcommands of `ogspr` do; `declared` has their names and options."""
