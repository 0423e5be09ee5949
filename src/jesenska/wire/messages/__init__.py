"""One file per API key: the listing is the protocol's table of contents."""
