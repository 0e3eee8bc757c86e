"""The contract of a store as a test suite, for authors of stores: only what `unibus.stores.seam.store.Store` promises.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path / "bus", clock, clock.timers(lambda: True))

The suite moves time with a `VirtualClock`: the store reads `clock.monotonic_ns` and `clock.wall_ns`, and sets its
deadlines with the timers of the clock. Nothing here sleeps, and a store that does not answer within 30 s fails.
"""

from unibus.testing.contracts.batch_ids import BatchIdContract, PositionListContract
from unibus.testing.contracts.batches import (
    BatchContract,
    EntityContract,
    HistoryContract,
    QuotaContract,
    WatchContract,
)
from unibus.testing.contracts.delivery import (
    DeferContract,
    HandlerClaimContract,
    LockContract,
    OrderContract,
    ProcessedContract,
)
from unibus.testing.contracts.entity_settings import IdleContract, MomentContract, StatusContract
from unibus.testing.contracts.forwards import (
    DuplicateBeforeQuotaContract,
    ForwardedDeadLetterContract,
    ForwardedDuplicateContract,
    ForwardLimitContract,
)
from unibus.testing.contracts.operator_actions import (
    DeadLetterContract,
    FormerContract,
    MoveContract,
    PositionContract,
    SeeingContract,
)
from unibus.testing.contracts.rig import OpenStore, Rig
from unibus.testing.contracts.routes import ForwardContract, TopicContract
from unibus.testing.contracts.rules import RuleContract
from unibus.testing.contracts.servers import (
    CatalogContract,
    ListedSessionContract,
    NamespaceContract,
    PeekContract,
    TokenContract,
)
from unibus.testing.contracts.sessions import SessionContract
from unibus.testing.contracts.timing import DedupContract, ExpiryContract, ScheduleContract

__all__ = ["OpenStore", "Rig", "StoreContract"]


class StoreContract(
    OrderContract,
    LockContract,
    DeferContract,
    HandlerClaimContract,
    ProcessedContract,
    ExpiryContract,
    ScheduleContract,
    DedupContract,
    TopicContract,
    ForwardContract,
    ForwardLimitContract,
    ForwardedDeadLetterContract,
    ForwardedDuplicateContract,
    DuplicateBeforeQuotaContract,
    SessionContract,
    BatchContract,
    BatchIdContract,
    QuotaContract,
    EntityContract,
    HistoryContract,
    WatchContract,
    DeadLetterContract,
    MoveContract,
    PositionContract,
    PositionListContract,
    FormerContract,
    SeeingContract,
    RuleContract,
    StatusContract,
    IdleContract,
    MomentContract,
    TokenContract,
    PeekContract,
    ListedSessionContract,
    CatalogContract,
    NamespaceContract,
):
    """The whole contract. Each part can be run alone."""
