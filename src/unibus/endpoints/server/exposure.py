"""Whether a server may be reached from elsewhere: not without TLS and keys, unless a setting says so.

Loopback and the networks of `allow_networks` are trusted: plain text and the emulator's well-known key are accepted
from there. Everything else needs TLS and a key that is secret. A server that could only be reached without them does
not start, because it would look protected.
"""

from unibus.config.settings import ServerSettings, is_loopback
from unibus.errors import ConfigInvalid


def check_exposure(settings: ServerSettings, has_keys: bool) -> None:
    """ConfigInvalid for an address other than loopback that has neither TLS nor keys, nor a setting that allows it.

    `has_keys` says whether the namespace has rules of its own, in the store or in the configuration.
    """
    elsewhere = [host for host in settings.host if not is_loopback(host)]
    if not elsewhere or settings.insecure or settings.allow_networks:
        return
    missing = [what for what, is_there in (("TLS", settings.tls), ("a key", has_keys)) if not is_there]
    if missing:
        raise ConfigInvalid(
            f"listening on {elsewhere[0]} without {' and without '.join(missing)} is refused",
            "add an authorization rule and keep TLS on; or name the networks to trust: --allow-networks 172.16.0.0/12; "
            "or accept plain text from everywhere: --insecure",
        )
