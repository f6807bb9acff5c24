"""Between the messages of the core and those of Kafka's protocol."""
