"""One page of all stored results beside the paper's printed values, and its Markdown twin."""
