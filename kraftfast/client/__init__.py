"""Who uses a quorum: producers and consumers, over rings on one host and over sockets."""
