"""Methods. One folder each; they meet the rest of the package through `protocol`."""
