"""The bus itself: publish/subscribe in memory, durable queues on a store, and the API classes that users import."""
