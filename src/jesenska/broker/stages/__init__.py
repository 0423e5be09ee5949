"""The stages of a broker's start. Each stage returns a frozen value that later stages use:

  ports           binds the listeners
  storage         locks the log directories
  tree            opens the metadata tree, and finds the cluster id, the broker id and the content of the tree
  replication     loads the logs, finds replicas that have lost data, and opens connections to other brokers
  authorization   reads the ACLs, if there is an authorizer
  control         receives the controller's requests, and runs the controller if this broker is elected
  coordinators    coordinates groups and transactions

`broker.server` runs the stages one after the other, and stops the parts that they have started."""
