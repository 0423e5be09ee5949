"""The rights that requests need: a table by API key (`table`) has the operations and resources of each, the answers of
refusals, and what is left out of answers. `access` has the authorizer and the rights of a connection's user; the other
files have the rules, by what the requests are about."""
