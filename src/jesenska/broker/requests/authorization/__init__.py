"""Checks if the user may send a request (authorization). `table` lists the operations and resources for each API key.
`access` has the authorizer and the rights of a connection's user. The other files have the check of each request: they
answer refused requests, and remove from answers what the user may not see."""
