"""What requests are allowed: a table by API key (`table`) of what each needs, what a refusal answers, and what is left
out of answers. `access` has the authorizer and the rights of a connection's user; the other files have the rules, by
what the requests are about."""
