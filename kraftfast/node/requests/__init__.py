"""What clients, tools and operators ask of a replica, over sockets and through its directory."""
