"""`unibus` with commits on the event loop: a server never does that, and its price is printed beside the rule.

    python -m benchmarks.http_on_loop serve FILE …

In place of a setting, which would only invite to a server that a slow disk stops.
"""

from unibus.bus.broker import Broker
from unibus.cli.main import app

if __name__ == "__main__":
    defaults = Broker.__init__.__kwdefaults__
    assert defaults is not None
    assert defaults["commits_on_loop"] is False
    defaults["commits_on_loop"] = True
    app()
