"""Authentication and authorization: principals, SASL mechanisms, ACLs, TLS contexts.

No module of this package uses a socket. The package has both sides of each SASL mechanism, for brokers and for
clients."""
