"""Checks the rights that requests need. `table` lists for each API key the operations and resources. `access` holds
the authorizer and the rights of a connection's user. The other files hold the check of each request: they answer
refusals, and leave out of answers whatever the user may not see."""
