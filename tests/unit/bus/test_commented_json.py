"""JSON with comments, as Microsoft's emulator ships its Config.json; and the line of what is wrong in a file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.bus.entities.commented_json import read_json, without_comments
from unibus.bus.entities.file import read_entity_file
from unibus.bus.entities.shapes import wanted_entities
from unibus.errors import ConfigInvalid, UsageError

# The shape, and the comments, of the file that the emulator's installer brings.
SHIPPED = """\
{
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          }
        ],
        "Topics": [
          {
            "Name": "topic.1", // a topic with one subscription for each kind of filter
            "Properties": {"DefaultMessageTimeToLive": "PT1H"},
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": {"MaxDeliveryCount": 3},
                "Rules": [
                  {
                    "Name": "app-prop-filter-1",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/text",
                        // Other supported properties
                        // "CorrelationId": "id1",
                        /* "Label": "subject1",
                           "MessageId": "msgid1", */
                        "To": "http://xyz"
                      }
                    }
                  }
                ]
              }
            ]
          }
        ]
      }
    ],
    "Logging": {"Type": "File"} // the last line
  }
}
"""


def test_the_shipped_file_is_read() -> None:
    found = wanted_entities(SHIPPED)
    assert [each.name for each in found] == ["queue.1", "topic.1", "topic.1/Subscriptions/subscription.1"]
    (rule,) = found[2].rules or ()
    assert "http://xyz" in str(rule.condition)
    assert "subject1" not in str(rule.condition)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('{"a": 1} // end', '{"a": 1}       '),
        ('{"a": "//no"}', '{"a": "//no"}'),
        (r'{"a": "\"//no"} // yes', r'{"a": "\"//no"}       '),
        ('{"a": /* 1\n2 */ 3}', '{"a":     \n     3}'),
        ('["/*", 1, "*/"]', '["/*", 1, "*/"]'),
        ("1 /* open", "1        "),
    ],
)
def test_comments_become_spaces(text: str, plain: str) -> None:
    assert without_comments(text) == plain


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_every_document_is_read_as_the_standard_library_reads_it(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert without_comments(text) == text
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("old", "new", "line", "named"),
    [
        ('"RequiresSession": false', '"RequiresSession": false,', 16, "not valid JSON"),
        ('"MaxDeliveryCount": 3,\n', '"MaxDeliveryCount": -3,\n', 13, "max_delivery_count"),
        ('"LockDuration": "PT1M"', '"LockDuration": "a minute"', 12, "a minute"),
        ('"LockDuration": "PT1M"', '"LookDuration": "PT1M"', 12, "LookDuration"),
        ('"RequiresSession": false', '"MaxDeliveryCount": 3', 15, "twice"),
        ('"FilterType": "Correlation"', '"FilterType": "Guess"', 28, "guess"),
        ('"Name": "topic.1"', '"Title": "topic.1"', 20, "no name"),
        ('"Name": "topic.1"', '"Name": "a b"', 20, "a b"),
        ('"To": "http://xyz"', '"Colour": "x"', 38, "colour"),
        ('"Name": "subscription.1"', '"Name": "subscription.1", "Kind": 1', 25, "kind"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path: Path, old: str, new: str, line: int, named: str) -> None:
    assert old in SHIPPED
    path = tmp_path / "Config.json"
    path.write_text(SHIPPED.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        read_entity_file(path)
    assert caught.value.what.startswith(f"{path}, line {line}: ")
    assert named in caught.value.what


def test_the_line_of_our_own_shape() -> None:
    with pytest.raises(ConfigInvalid, match="line 3: 'b'"):
        wanted_entities('{"queues": {\n"a": {},\n"b": {"lock_duration": -1}}}')
    with pytest.raises(ConfigInvalid, match="line 2: rule 'r'"):
        wanted_entities('{"topics": {"t": {"subscriptions": {"s": {"rules": {\n"r": {"filter": "=="}}}}}}}')
    with pytest.raises(ConfigInvalid, match=r"line 2: .*not valid UTF-8"):
        wanted_entities(b'{"queues":\n "\xff"}')
