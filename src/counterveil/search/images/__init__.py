"""Believable answers for images: see `counterveil.search.images.descent`."""
