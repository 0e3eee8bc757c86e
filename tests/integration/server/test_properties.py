"""Properties of messages as headers of a real connection: their names keep their case, which ASGI does not have."""

import http.client
import time

from tests.integration.namespace import Namespace
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.core.access.token import make_token


def test_names_of_properties_keep_their_case(namespace: Namespace) -> None:
    token = make_token("sb://localhost/", WELL_KNOWN_NAME, WELL_KNOWN_KEY, int(time.time()) + 600)
    connection = http.client.HTTPConnection("localhost", namespace.port, timeout=30)
    try:
        for method, path, headers in (
            ("PUT", "/servicebus/queues/spelled", {}),
            ("POST", "/spelled/messages", {"ShippingRegion": '"north"', "count": "3"}),
        ):
            connection.request(method, path, b"", {"Authorization": token, **headers})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201
        (claimed,) = namespace.call(lambda: namespace.broker.receive("spelled", lock=False))
        assert dict(namespace.broker.decode(claimed).headers) == {"ShippingRegion": "north", "count": 3}
        connection.request("DELETE", "/spelled", b"", {"Authorization": token})
        assert connection.getresponse().status == 200
    finally:
        connection.close()
