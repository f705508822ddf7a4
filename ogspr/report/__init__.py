"""From runs to tables, figures and a page in a browser."""
