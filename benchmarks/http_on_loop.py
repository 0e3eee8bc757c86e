"""`unibus` with commits on the event loop: a server never does that, and its price is printed beside the rule.

    python -m benchmarks.http_on_loop serve FILE …

In place of a setting, which would only invite to a server that a slow disk stops.
"""

from functools import partial

from unibus.bus.api import broker
from unibus.cli.main import app

if __name__ == "__main__":
    # A server looks its class up when it starts.
    broker.Broker = partial(broker.Broker, commits_on_loop=True)  # type: ignore[assignment, misc]
    app()
