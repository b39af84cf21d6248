"""What every branch of the tree has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A branch of the tree."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        str_strip_whitespace=True,
        # A value may be a secret in the wrong place: no message repeats it.
        hide_input_in_errors=True,
    )
