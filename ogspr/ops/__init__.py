"""Pure tensor functions, each one equation. Randomness and numbers come in as arguments."""
