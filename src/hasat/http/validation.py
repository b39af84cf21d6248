"""Invalid values of requests, in the words of the caller's language."""

from collections.abc import Mapping
from typing import Any

from hasat.messages import msg, template

_NOT_TEXT = template("Input should be text")
_NOT_WHOLE = template("Input should be a whole number")
_NOT_NUMBER = template("Input should be a number")
_NOT_BOOLEAN = template("Input should be true or false")
_NOT_OBJECT = template("Input should be an object")
_NOT_LIST = template("Input should be a list")
_NOT_DATE = template("Input should be a date such as 2026-02-19")
_NOT_TIME = template("Input should be a time such as 2026-02-19T10:00:00")

_TEXTS: Mapping[str, str] = {
    "missing": template("Field required"),
    "extra_forbidden": template("There is no such field"),
    "string_type": _NOT_TEXT,
    "string_unicode": _NOT_TEXT,
    "string_too_short": template("Text should have at least {min_length} characters"),
    "string_too_long": template("Text should have at most {max_length} characters"),
    "string_pattern_mismatch": template("Text should match the pattern {pattern}"),
    "int_type": _NOT_WHOLE,
    "int_parsing": _NOT_WHOLE,
    "int_from_float": _NOT_WHOLE,
    "int_parsing_size": template("Number is far too large"),
    "float_type": _NOT_NUMBER,
    "float_parsing": _NOT_NUMBER,
    "finite_number": _NOT_NUMBER,
    "bool_type": _NOT_BOOLEAN,
    "bool_parsing": _NOT_BOOLEAN,
    "greater_than": template("Input should be greater than {gt}"),
    "greater_than_equal": template("Input should be greater than or equal to {ge}"),
    "less_than": template("Input should be less than {lt}"),
    "less_than_equal": template("Input should be less than or equal to {le}"),
    "too_short": template("List should have at least {min_length} items, not {actual_length}"),
    "too_long": template("List should have at most {max_length} items, not {actual_length}"),
    "list_type": _NOT_LIST,
    "tuple_type": _NOT_LIST,
    "dict_type": _NOT_OBJECT,
    "model_type": _NOT_OBJECT,
    "model_attributes_type": _NOT_OBJECT,
    "literal_error": template("Input should be one of {expected}"),
    "union_tag_invalid": template("{discriminator} should be one of {expected_tags}"),
    "union_tag_not_found": template("Field {discriminator} required"),
    "date_type": _NOT_DATE,
    "date_parsing": _NOT_DATE,
    "date_from_datetime_parsing": _NOT_DATE,
    "datetime_type": _NOT_TIME,
    "datetime_parsing": _NOT_TIME,
    "datetime_from_date_parsing": _NOT_TIME,
    "uuid_type": template("Input should be a UUID"),
    "uuid_parsing": template("Input should be a UUID"),
    "json_invalid": template("not valid JSON at character {position}"),
}
"""By the type of pydantic's error; its context has the parameters."""


def describe_invalid(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, as a message that can be translated."""
    context: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            reason = context["error"].args[0] if context["error"].args else error["msg"]
            return reason if isinstance(reason, str) else str(reason)
        case "json_invalid":
            return msg(_TEXTS["json_invalid"], position=error["loc"][-1])
        case "too_long" if context.get("actual_length") is None:
            return msg("List should have at most {max_length} items", **context)
        case "literal_error" | "enum":
            # 'a', 'b' or 'c'
            expected = str(context["expected"]).replace("' or '", "', '")
            return msg(_TEXTS["literal_error"], expected=expected)
        case kind if kind in _TEXTS:
            return msg(_TEXTS[kind], **context)
        case _:
            return str(error["msg"])
