"""The strict priority queue against a sorted list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.flow.queue import PriorityQueue
from unibus.errors import QueueFull

Item = tuple[int, int]  # (priority, sequence)

LEVELS = st.one_of(st.sampled_from([0, 25, 50, 75, 100]), st.integers(0, 255))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), LEVELS),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("restore"), st.integers(0, 50)),
        st.tuples(st.just("evict"), LEVELS),
        st.tuples(st.just("drain"), st.just(0)),
    ),
    max_size=120,
)


class Model:
    """What the queue promises, in the fewest words."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.waiting: list[Item] = []

    def push(self, item: Item) -> bool:
        if self.bound and len(self.waiting) >= self.bound:
            return False
        self.waiting.append(item)
        return True

    def pop(self) -> Item | None:
        if not self.waiting:
            return None
        item = min(self.waiting)
        self.waiting.remove(item)
        return item

    def evict(self, priority: int) -> Item | None:
        if not self.waiting:
            return None
        level = max(item[0] for item in self.waiting)
        if level < priority:
            return None
        item = min(item for item in self.waiting if item[0] == level)
        self.waiting.remove(item)
        return item


@settings(max_examples=250, deadline=None)
@given(steps=STEPS, bound=st.sampled_from([0, 1, 3, 20]))
def test_every_step_does_what_the_model_does(steps: list[tuple[str, int]], bound: int) -> None:
    queue: PriorityQueue[Item] = PriorityQueue(bound)
    model = Model(bound)
    out: list[Item] = []  # Popped, and may be requeued.
    sequence = 0
    for name, value in steps:
        if name == "push":
            sequence += 1
            item = (value, sequence)
            refused: object = None
            try:
                queue.push_with_priority(item, value)
            except QueueFull as error:
                refused = error.item
            assert refused is (None if model.push(item) else item)
        elif name == "pop":
            item_or_none = queue.pop()
            assert item_or_none == model.pop()
            if item_or_none is not None:
                out.append(item_or_none)
        elif name == "restore" and out:
            item = out.pop(value % len(out))
            queue.restore(item, item[0], item[1])
            model.waiting.append(item)
        elif name == "evict":
            assert queue.evict(value) == model.evict(value)
        elif name == "drain":
            drained = queue.drain()
            assert drained == sorted(model.waiting)
            model.waiting.clear()
            out.extend(drained)
        assert len(queue) == len(model.waiting)
        assert queue.is_empty() == (not model.waiting)
        for level in (0, 50, 255):
            assert queue.count_from(level) == sum(item[0] >= level for item in model.waiting)
    assert queue.drain() == sorted(model.waiting)
