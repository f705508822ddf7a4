"""What the subcommands of `ogspr` do; `ogspr.cli` gives them names and options."""
