"""Users and how they are known: principals, exchanges of SASL mechanisms, access rules, TLS contexts.

Nothing here knows a socket. Brokers and clients use both sides of a mechanism from here."""
