"""Accounts of erasures that earlier versions wrote, converted to the present form.

    agt.erasure/1    has sentences beside numbers
    agt.erasure/2    has facts as text
    agt.erasure/3    has other names, and calls a search one although no erased record could be
                     looked for; it is read as none

Sentences stay text.
"""

from collections.abc import Callable
from typing import Any, Literal

from agt.errors import ConfigError
from agt.templates import IN_WORDS
from agt.unlearning.promise import promise_with_codes, removal_with_codes
from agt.unlearning.sentences import remark_from_text, remark_with_fact

VERSION: Literal["agt.erasure/4"] = "agt.erasure/4"  # the present form
VERSION_WITH_SHORT_NAMES = "agt.erasure/3"  # whose counts of people have other names
VERSION_WITH_TEXT = "agt.erasure/2"  # whose facts are text
VERSION_IN_WORDS = "agt.erasure/1"


def of_earlier_form(node: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of an account in the present format; sentences stay text.

    Args:
        node: the entries as they were read. Those of the present or an unknown version are returned
            as they are.

    Raises:
        ConfigError: an entry that the account's own version has is missing or of another type.
    """
    version = node.get("schema")
    forms: dict[object, Callable[[dict[str, Any]], dict[str, Any]]] = {
        VERSION_IN_WORDS: _from_sentences,
        VERSION_WITH_TEXT: _from_text_of_facts,
        VERSION_WITH_SHORT_NAMES: dict,
    }
    if version not in forms:
        return node
    try:
        return _with_present_names(forms[version]({**node, "schema": VERSION}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"account.json was altered or damaged after agt wrote it (format {version}: an "
            f"entry is missing or has the wrong type: {error}). Restore it from a backup"
        ) from None


def _from_text_of_facts(parts: dict[str, Any]) -> dict[str, Any]:
    """Return an account of agt.erasure/2 in the form of agt.erasure/3: facts as codes.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it does not have its version's form.
    """
    removal = removal_with_codes(parts["removal"])
    promise = promise_with_codes(removal["promise"])
    earlier = []
    for result in parts["earlier"]:
        reasons = [remark_with_fact(reason) for reason in result["reasons"]]
        earlier.append({**result, "reasons": reasons})
    return {**parts, "removal": {**removal, "promise": promise}, "earlier": earlier}


def _from_sentences(parts: dict[str, Any]) -> dict[str, Any]:
    """Return an account of agt.erasure/1 in the form of agt.erasure/3: sentences as text remarks.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it does not have its version's form.
    """
    removal = dict(parts.pop("done"))
    promise = dict(parts.pop("guaranteed"))
    promise["method"] = removal.pop("method")
    promise["adaptive"] = promise.pop("requests") == "adaptive"
    if "training" in removal:
        parts["training"] = removal.pop("training")
    if "budget" in parts:
        removal["allowance"] = parts.pop("budget")
    parts["removal"] = {"promise": promise_with_codes(promise), **removal_with_codes(removal)}
    parts["outside"] = [remark_from_text(text) for text in parts["outside"]]
    parts["earlier"] = [_earlier_in_words(dict(earlier)) for earlier in parts["earlier"]]
    if "sweep" in parts:
        parts["sweep"] = _search_in_words(dict(parts["sweep"]))
    return parts


def _earlier_in_words(earlier: dict[str, Any]) -> dict[str, Any]:
    """Return an earlier result of agt.erasure/1 with its reason as a text remark.

    Args:
        earlier: the entry, which is changed.
    """
    reasons = [remark_from_text(earlier.pop("why"))]
    return {**earlier, "reasons": reasons}


def _search_in_words(search: dict[str, Any]) -> dict[str, Any]:
    """Return the search of an account of agt.erasure/1 with its sentences as text remarks."""
    unlooked = [remark_from_text(text) for text in search["unlooked"]]
    return {
        **search,
        "places": [_place_in_words(dict(place)) for place in search["places"]],
        "unlooked": unlooked,
    }


def _place_in_words(place: dict[str, Any]) -> dict[str, Any]:
    """Return a searched place of agt.erasure/1 with its sentences as text remarks.

    Args:
        place: the entry, which is changed.
    """
    remarks = [remark_from_text(place.pop("words"))]
    return {**place, "place": remark_from_text(place["place"]), "remarks": remarks}


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
        if IN_WORDS not in codes:
            stopped = len(codes.get("training_stopped", {}).get("folders", ()))
            unsearched = stopped + codes.get("key_gone", {}).get("runs", 0)
            place["searched"] = 0 if forgotten else old["files"] - unsearched
            if not place["searched"]:
                place["remarks"] = [
                    remark
                    for remark in old["remarks"]
                    if remark["code"] != "none_trained_on_erased"
                ]
        places.append(place)
    return {**search, "places": places}
