"""Many runs as one grid: what to run, what is done, who runs it. All state is in the folders of the runs."""
