"""The test kit for users: a virtual clock, buses that record what was published, and fixtures for pytest. For durable
code: a simulated disk with power cuts, a store that misbehaves, the contract of stores, and a reference model.

Names are imported at their first use, because pytest imports this package at every start in every project that has
unibus installed, even if its tests use no bus.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unibus.testing.clock.virtual_clock import VirtualClock
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
    from unibus.testing.files import FolderDisk
    from unibus.testing.misbehaving_store import MisbehavingStore
    from unibus.testing.model.messages import ModelMessage
    from unibus.testing.model.parts import ModelRules, ModelSend
    from unibus.testing.model.rules import ModelRule
    from unibus.testing.model.store import ModelStore
    from unibus.testing.power import Fault, SimulatedDisk
    from unibus.testing.recording import RecordingBus, RecordingSyncBus
    from unibus.testing.store_contract import OpenStore, Rig, StoreContract

__all__ = [
    "BatchContract",
    "BatchIdContract",
    "CatalogContract",
    "DeadLetterContract",
    "DedupContract",
    "DeferContract",
    "DuplicateBeforeQuotaContract",
    "EntityContract",
    "ExpiryContract",
    "Fault",
    "FolderDisk",
    "FormerContract",
    "ForwardContract",
    "ForwardLimitContract",
    "ForwardedDeadLetterContract",
    "ForwardedDuplicateContract",
    "HandlerClaimContract",
    "HistoryContract",
    "IdleContract",
    "ListedSessionContract",
    "LockContract",
    "MisbehavingStore",
    "ModelMessage",
    "ModelRule",
    "ModelRules",
    "ModelSend",
    "ModelStore",
    "MomentContract",
    "MoveContract",
    "NamespaceContract",
    "OpenStore",
    "OrderContract",
    "PeekContract",
    "PositionContract",
    "PositionListContract",
    "ProcessedContract",
    "QuotaContract",
    "RecordingBus",
    "RecordingSyncBus",
    "Rig",
    "RuleContract",
    "ScheduleContract",
    "SeeingContract",
    "SessionContract",
    "SimulatedDisk",
    "StatusContract",
    "StoreContract",
    "TokenContract",
    "TopicContract",
    "VirtualClock",
    "WatchContract",
]

_HOMES = {
    "BatchContract": "contracts.batches",
    "BatchIdContract": "contracts.batch_ids",
    "DedupContract": "contracts.timing",
    "DeferContract": "contracts.delivery",
    "HandlerClaimContract": "contracts.delivery",
    "EntityContract": "contracts.batches",
    "ExpiryContract": "contracts.timing",
    "Fault": "power",
    "MisbehavingStore": "misbehaving_store",
    "FolderDisk": "files",
    "ForwardContract": "contracts.routes",
    "DuplicateBeforeQuotaContract": "contracts.forwards",
    "ForwardLimitContract": "contracts.forwards",
    "ForwardedDeadLetterContract": "contracts.forwards",
    "ForwardedDuplicateContract": "contracts.forwards",
    "DeadLetterContract": "contracts.operator_actions",
    "FormerContract": "contracts.operator_actions",
    "MoveContract": "contracts.operator_actions",
    "PositionContract": "contracts.operator_actions",
    "PositionListContract": "contracts.batch_ids",
    "SeeingContract": "contracts.operator_actions",
    "HistoryContract": "contracts.batches",
    "ModelMessage": "model.messages",
    "LockContract": "contracts.delivery",
    "ModelRule": "model.rules",
    "ModelStore": "model.store",
    "OpenStore": "store_contract",
    "OrderContract": "contracts.delivery",
    "ModelSend": "model.parts",
    "ProcessedContract": "contracts.delivery",
    "QuotaContract": "contracts.batches",
    "RecordingBus": "recording",
    "RecordingSyncBus": "recording",
    "Rig": "store_contract",
    "ModelRules": "model.parts",
    "RuleContract": "contracts.rules",
    "ScheduleContract": "contracts.timing",
    "SessionContract": "contracts.sessions",
    "SimulatedDisk": "power",
    "CatalogContract": "contracts.servers",
    "ListedSessionContract": "contracts.servers",
    "NamespaceContract": "contracts.servers",
    "PeekContract": "contracts.servers",
    "TokenContract": "contracts.servers",
    "IdleContract": "contracts.entity_settings",
    "MomentContract": "contracts.entity_settings",
    "StatusContract": "contracts.entity_settings",
    "StoreContract": "store_contract",
    "TopicContract": "contracts.routes",
    "VirtualClock": "clock.virtual_clock",
    "WatchContract": "contracts.batches",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
