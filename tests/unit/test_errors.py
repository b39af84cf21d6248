"""The error tree in the module's docstring is the tree in the code."""

import hasat.errors
from hasat.errors import HasatError


def _tree(cls: type[HasatError]) -> set[type[HasatError]]:
    return {cls}.union(*(_tree(sub) for sub in cls.__subclasses__()))


def test_every_error_is_in_the_docstring_and_nothing_else_is() -> None:
    listed = {
        word
        for line in (hasat.errors.__doc__ or "").splitlines()
        for word in line.split()
        if word.endswith("Error")
    }
    assert listed == {cls.__name__ for cls in _tree(HasatError) if cls.__module__ == "hasat.errors"}


def test_codes_are_unique_so_that_a_problem_type_names_one_family() -> None:
    codes = [cls.code for cls in _tree(HasatError) if cls.__module__ == "hasat.errors"]
    assert len(codes) == len(set(codes))


def test_an_error_reads_as_what_happened_and_what_to_do() -> None:
    error = HasatError("The list is empty.", remedy="Try again later.")
    assert str(error) == "The list is empty. Try again later."
    assert error.message == "The list is empty."
