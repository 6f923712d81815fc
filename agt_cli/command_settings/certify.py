"""Settings of agt certify."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError
from agt.settings import keyword_schema, validate
from agt_cli.command_settings.on_run import RUN_SETTINGS, STANDARD_INPUT, check_run_settings
from agt_cli.configuration import check_keys


@keyword_schema
class CertifySettings:
    """How a run is certified.

    Attributes:
        map_resolution: the number of points on each side of the map of the plane, which only
            two-dimensional data have; 0: no map.
        person: ids of people. For each of them alone, agt computes which answers stay the same
            without that person's records. An id that was read as a whole number stays one, because
            ``+7`` and ``7`` are then the same.
        tolerance: a change of an answer that is a number: agt computes up to which k the answer
            changes by at most this much; None: agt does not compute this.
    """

    map_resolution: Annotated[int, Field(ge=0, le=1000)] = 160
    person: tuple[str | int, ...] = ()
    tolerance: Annotated[float, Field(ge=0)] | None = None

    def check_target(self, has_numbers: bool) -> None:
        """Raise ConfigError if a setting is for answers of another kind than the run's.

        Args:
            has_numbers: whether the run answers with numbers; False: with classes.
        """
        if self.person and has_numbers:
            raise ConfigError(
                "person=... only compares answers that are classes, but this run answers with "
                "numbers: leave person=... out"
            )
        if self.tolerance is not None and not has_numbers:
            raise ConfigError(
                f"tolerance={self.tolerance:g} is for answers that are numbers, but this run "
                "answers with classes: leave tolerance=... out"
            )


def check_certify(config: Mapping[str, Any]) -> CertifySettings:
    """Return the settings of agt certify but for ``run``, ``inputs``, ``digest`` and ``compute``.

    The last two are checked as well.

    Raises:
        ConfigError: a key is unknown, or a value is wrong; the message names the key.
    """
    check_keys(config, (*RUN_SETTINGS, "map_resolution", "person", "tolerance"))
    if str(config.get("inputs")) == str(STANDARD_INPUT):
        raise ConfigError(
            "inputs=-: agt certify cannot read queries from standard input. Give a file with "
            "inputs=FILE, or use agt predict"
        )
    check_run_settings(config)
    given = {
        "map_resolution": config.get("map_resolution"),
        "person": _ids_of_people(config.get("person")),
        "tolerance": config.get("tolerance"),
    }
    return validate(CertifySettings, given, "")


def _ids_of_people(value: object) -> tuple[str | int, ...]:
    """Return the ids that the setting ``person`` names, one of them or a list; empty: none.

    Raises:
        ConfigError: the list is empty, or an entry is neither text nor a whole number.
    """
    if value is None:
        return ()
    entries = value if isinstance(value, list | tuple) else [value]
    valid = [type(entry) in (str, int) and str(entry) != "" for entry in entries]
    if not entries or not all(valid):
        raise ConfigError(
            f"person={value}: give the id of a person, or a list of ids as in person=[p17,p18]. "
            "Quote an id that is neither text nor a whole number, as in \"person='1.5'\""
        )
    return tuple(entries)
