"""The configuration of a server: one frozen object, read once, with the origin of every value.

    flags ─┐
    UNIBUS_* ─┤──▶ read_configuration ──▶ Configuration(settings: ServerSettings, origins)
    file ─────┤         (sources)
    defaults ─┘

The packages that are configured take the settings as an argument; none of them reads the environment or a file.
"""

from unibus.config.settings import ServerSettings

__all__ = ["ServerSettings"]
