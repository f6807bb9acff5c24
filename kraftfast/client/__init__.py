"""The clients of a quorum: producers and consumers, over rings on one host or over sockets."""
