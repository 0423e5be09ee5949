"""The stages of a broker's start. Each stage returns a frozen value that the next stages use:

    ports           listeners are bound
    storage         log directories are locked
    tree            the broker's place in the tree: cluster id, broker id, the content of the tree
    replication     logs are loaded; which replicas have lost data; connections to other brokers
    authorization   the access rules, if there is an authorizer
    control         orders of controllers, the controller if this broker is elected, requests of handlers to it
    coordinators    groups and transactions

`broker.server` runs the stages one after the other, and stops the parts that they have started."""
