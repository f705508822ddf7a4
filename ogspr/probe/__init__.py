"""Linear probing: what a frozen representation says about the state of the simulator."""
