"""``spec audit``: whether a server with drafts is lossless, from its answers alone."""
