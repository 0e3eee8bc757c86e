"""The conversion of settings goes by the type in their rows: a new row with an Azure name needs no code here."""

import pytest

from unibus.bus.api.broker import EntityInfo
from unibus.bus.entities import shapes
from unibus.bus.entities.azure_names import PROPERTIES
from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import EntityDescription
from unibus.core.lifecycle.state.setting_types import CHOICE, ENTITY, FLAG, NUMBER, SECONDS, TEXT, Setting, SettingValue
from unibus.core.lifecycle.state.settings import DEFAULTS, SETTINGS
from unibus.endpoints.http.administration.properties import description_of, given_settings, replaced_settings
from unibus.errors import ConfigInvalid

AZURE = [row for row in SETTINGS.values() if row.azure]
SAMPLES: dict[str, tuple[str, SettingValue]] = {
    SECONDS: ("PT5M", 300.0),
    NUMBER: ("7", 7),
    FLAG: ("true", True),
    ENTITY: ("sb://bus.test/other", "other"),
    CHOICE: ("SendDisabled", "send_disabled"),
    TEXT: ("words", "words"),
}
PLANTED = Setting("max_readers", NUMBER, 5, "a limit of this test", least=1, most=9, azure="MaxReaders")


def check_both_ways(row: Setting, document: str) -> None:
    text, value = SAMPLES[row.type]
    assert given_settings(EntityDescription(document, {row.azure: text})) == {row.name: value}
    info = EntityInfo("q", "queue", {**DEFAULTS, row.name: value})
    assert document == schema.QUEUE
    assert description_of(info, "bus.test", {}).values[row.azure] == text


@pytest.mark.parametrize("row", AZURE, ids=lambda row: row.azure)
def test_a_setting_with_an_azure_name_is_an_element_and_converted(row: Setting) -> None:
    documents = [document for document, elements in schema.ELEMENTS.items() if row.azure in elements]
    assert documents
    if schema.QUEUE in documents:
        check_both_ways(row, schema.QUEUE)
    else:
        text, value = SAMPLES[row.type]
        assert given_settings(EntityDescription(documents[0], {row.azure: text})) == {row.name: value}


def test_no_two_settings_share_an_azure_name() -> None:
    assert len(PROPERTIES) == len(AZURE)


def test_a_planted_row_is_converted_checked_and_read_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row, and its place in Azure's order of elements, is all that is planted: the other tables derive from it."""
    monkeypatch.setitem(SETTINGS, PLANTED.name, PLANTED)
    monkeypatch.setitem(DEFAULTS, PLANTED.name, PLANTED.default)
    monkeypatch.setitem(PROPERTIES, PLANTED.azure, PLANTED.name)
    monkeypatch.setitem(shapes._FOLDED, PLANTED.azure.casefold(), PLANTED.name)
    monkeypatch.setitem(schema.ELEMENTS, schema.QUEUE, (*schema.ELEMENTS[schema.QUEUE], PLANTED.azure))
    check_both_ways(PLANTED, schema.QUEUE)
    assert replaced_settings(EntityDescription(schema.QUEUE, {}), {})[PLANTED.name] == 5
    with pytest.raises(ConfigInvalid, match="MaxReaders: max_readers must be a whole number from 1 to 9, got 10"):
        given_settings(EntityDescription(schema.QUEUE, {"MaxReaders": "10"}))
    text = '{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Properties": {"maxreaders": 3}}]}]}}'
    assert shapes.wanted_entities(text)[0].settings == {"max_readers": 3}
