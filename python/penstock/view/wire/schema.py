"""The declared answers as one JSON schema (draft 7, which generators and validators agree on)."""

from typing import Any

import msgspec

from penstock.view.wire import (
    answers,
    batch_answers,
    dataset_answers,
    host_answers,
    machine_answers,
    run_answers,
)
from penstock.view.wire.alternatives import OneOf

_REF = "#/definitions/{name}"
#: What has several forms; msgspec does not look behind the names of these.
_ALTERNATIVES: tuple[Any, ...] = (batch_answers.BatchHead, dataset_answers.DatasetLine)
#: Beside its own fields a token has those of its batch's columns.
_OPEN = {batch_answers.TokenDetail.__name__}
#: What pages have no use for; the length of a tuple is that of its list of items.
_UNCHECKED = ("$schema", "title", "description", "minItems", "maxItems")
#: Where keys are names of ours and not words of JSON schema.
_BY_NAME = ("properties", "definitions")


def schema() -> dict[str, Any]:
    """All answers, by name in ``definitions``; the root is ``Answers``, with the answer of every route."""
    forms = [form for alternative in _ALTERNATIVES for form in alternative.forms]
    (root, *_), definitions = msgspec.json.schema_components(
        [answers.Answers, *forms], schema_hook=_any_of, ref_template=_REF
    )
    ordered = {name: _declared(name, _plain(definition)) for name, definition in sorted(definitions.items())}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **root, "definitions": ordered}


def for_pages(part: Any) -> Any:
    """The schema as pages carry it to check answers: without words, and open, since a newer server may say more."""
    if isinstance(part, list):
        return [for_pages(item) for item in part]
    if not isinstance(part, dict):
        return part
    kept = {
        key: value for key, value in part.items() if key not in _UNCHECKED and not isinstance(value, bool)
    }
    return {
        key: {name: for_pages(item) for name, item in value.items()} if key in _BY_NAME else for_pages(value)
        for key, value in kept.items()
    }


def _any_of(kind: type) -> dict[str, Any]:
    if not issubclass(kind, OneOf):
        raise NotImplementedError(f"{kind} has no schema")
    return {"anyOf": [{"$ref": _REF.format(name=form.__name__)} for form in kind.forms]}


def _declared(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A definition with its fields in the order of the declaration, and closed: an answer has no others."""
    modules = (answers, batch_answers, dataset_answers, host_answers, machine_answers, run_answers)
    declared = next(getattr(module, name) for module in modules if hasattr(module, name))
    properties = {field: definition["properties"][field] for field in declared.__annotations__}
    required = [field for field in properties if field in definition["required"]]
    more = {"properties": properties, "required": required, "additionalProperties": name in _OPEN}
    return {**definition, **more}


def _plain(part: Any) -> Any:
    """Draft 7 has no ``prefixItems``: the items of a tuple are a list of schemas."""
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    result = {key: _plain(value) for key, value in part.items()}
    if "prefixItems" in result:
        result["items"] = result.pop("prefixItems")
    return result
