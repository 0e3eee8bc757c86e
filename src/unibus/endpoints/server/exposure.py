"""Checks that a server is not reachable from other machines without TLS and keys, unless a setting allows it.

Loopback and the networks of `allow_networks` are trusted: plain text and the emulator's well-known key are accepted
from there. All other clients need TLS and a secret key. A server that lacks one of these for an address other than
loopback does not start: it would only look protected.
"""

from unibus.config.settings import ServerSettings, is_loopback
from unibus.errors import ConfigInvalid


def check_exposure(settings: ServerSettings, has_keys: bool) -> None:
    """ConfigInvalid if the server listens beyond loopback without TLS or without keys, and no setting allows it.

    `has_keys`: whether the namespace has authorization rules, in the store or in the configuration.
    """
    elsewhere = [host for host in settings.host if not is_loopback(host)]
    if not elsewhere or settings.insecure or settings.allow_networks:
        return
    missing = [what for what, exists in (("TLS", settings.tls), ("a key", has_keys)) if not exists]
    if missing:
        raise ConfigInvalid(
            f"listening on {elsewhere[0]} without {' and without '.join(missing)} is refused",
            "add an authorization rule and keep TLS on; or trust some networks: --allow-networks 172.16.0.0/12; "
            "or accept plain text from everywhere: --insecure",
        )
