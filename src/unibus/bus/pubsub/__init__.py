"""Publish and subscribe in memory: channels, consumer groups, admission and backpressure.

    publish ──▶ Exchange ──▶ Channel ──▶ Group.queue ──▶ Consumer slot ──▶ handler
                (routing)    (admission)  (one per consumer group)   (execution/)

Nothing here writes to a store; persistent channels (persistent/) put a store in front of the same groups.
"""
