"""ZooKeeper's client protocol: the tree served to ZooKeeper's clients, and a store on anything that speaks it.

messages    bytes <-> values (jute)
frames      a stream of bytes <-> frames
sessions    who is there, until when, by which connection (decides)
acl         who may do what: identities and rules (decides)
server      moves: connections, answers, watches over an `EmbeddedTree`
words       the answers to the four-letter words
client      moves: a `Store` on a server of ours or a ZooKeeper ensemble"""
