"""ZooKeeper's client protocol. It has two parts: a server that offers a metadata tree to ZooKeeper's clients, and a
client (a `Store`) for any server that uses the protocol.

messages                    bytes <-> values (jute)
frames                      a stream of bytes <-> frames
node_acls                   the ACLs of Kafka's nodes (decides), and a store that creates nodes with them
tls_streams                 the server's TLS handshakes (does input and output)
server.guard                who may use a served tree (decides)
server.sessions             sessions with their timeouts and connections (decides)
server.server               connections, answers, watches over an `EmbeddedTree` (does input and output)
server.four_letter_words    the answers to the four-letter words
client.client               a `Store` on a server of jesenska or a ZooKeeper ensemble (does input and output)
client.access               TLS and the login of a client"""
