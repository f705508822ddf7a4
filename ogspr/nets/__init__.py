"""Network modules with explicit sizes. They know shapes, not methods."""
