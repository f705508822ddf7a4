"""Running learners."""
