"""Accounts of erasures in the form agt.erasure/3, which agt wrote from version 0.9 to 0.14.

It has other names, and calls a search one although no erased record could be looked for; it is read
as none.
"""

from typing import Any, Literal

from agt.errors import ConfigError

VERSION: Literal["agt.erasure/4"] = "agt.erasure/4"  # the present form
VERSION_WITH_SHORT_NAMES = "agt.erasure/3"


def of_earlier_form(node: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of an account in the present form.

    Args:
        node: the entries as they were read. Those of another form than agt.erasure/3 are returned
            as they are.

    Raises:
        ConfigError: an entry that the form has is missing or of another type.
    """
    if node.get("schema") != VERSION_WITH_SHORT_NAMES:
        return node
    try:
        return _with_present_names({**node, "schema": VERSION})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"account.json was altered or damaged after agt wrote it (form "
            f"{VERSION_WITH_SHORT_NAMES}: an entry is missing or has the wrong type: {error}). "
            "Restore it from a backup"
        ) from None


OLD_NAMES = {
    "people": "people_with_training_records",
    "untrained": "people_with_test_records_only",
    "records": "training_records",
    "hashes": "hashes_in_log",
    "pending": "people_pending_before",
}
"""Entries of ``asked`` in agt.erasure/3 -> their names now."""


def _with_present_names(parts: dict[str, Any]) -> dict[str, Any]:
    """Return an account of agt.erasure/3 under the present names.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is in no such form.
    """
    counts = {"people_with_test_records_only": 0, "ids_not_in_data": 0}
    counts |= {OLD_NAMES.get(name, name): value for name, value in parts["asked"].items()}
    counts["people_requested"] = (
        counts["people_with_training_records"] + counts["people_with_test_records_only"]
    )
    parts = {**parts, "asked": counts, "earlier": _one_for_each_folder(parts["earlier"])}
    if "sweep" in parts:
        parts["sweep"] = _search_with_present_names(parts["sweep"])
    return parts


def _one_for_each_folder(earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the earlier results of an account of agt.erasure/3, one for each folder.

    That form had one entry for the answers of a folder that stand, and one for those that are void.
    Their numbers were only in the reasons.
    """
    counts = {
        "answers_stand": "stable",
        "answers_lost": "lost",
        "answers_not_covered": "given",
        **dict.fromkeys(("group_pure", "group_approximate", "group_gaussian"), "releases"),
    }
    merged = dict[tuple[str, str | None], dict[str, Any]]()
    for old in earlier:
        first = old["reasons"][0]
        answers = first["values"].get(counts.get(first["code"], ""), 1)
        result = {name: value for name, value in old.items() if name not in ("stands", "reasons")}
        result |= {"answers_standing": 0, "answers_void": 0, "reasons": []}
        result = merged.setdefault((old["name"], old.get("state")), result)
        if not isinstance(old["stands"], bool):
            raise ValueError(f"stands = {old['stands']!r}")
        result["answers_standing" if old["stands"] else "answers_void"] += answers
        result["reasons"] = [*result["reasons"], *old["reasons"]]
    return list(merged.values())


def _search_with_present_names(search: dict[str, Any]) -> dict[str, Any]:
    """Return the search of an account of agt.erasure/3 with the number of runs that were searched.

    That form counted every run as looked at, also where no erased record could be looked for,
    because the data did not have it any more.
    """
    forgotten = any(
        remark["code"] == "erased_forgotten" and remark["values"]["forgotten"]
        for remark in search["unlooked"]
    )
    places = []
    for old in search["places"]:
        place = {**old, "runs": old["files"]}
        del place["files"]
        codes = {remark["code"]: remark.get("values", {}) for remark in old["remarks"]}
        stopped = len(codes.get("training_stopped", {}).get("folders", ()))
        unsearched = stopped + codes.get("key_gone", {}).get("runs", 0)
        place["searched"] = 0 if forgotten else old["files"] - unsearched
        if not place["searched"]:
            place["remarks"] = [
                remark for remark in old["remarks"] if remark["code"] != "none_trained_on_erased"
            ]
        places.append(place)
    return {**search, "places": places}
