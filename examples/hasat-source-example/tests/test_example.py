from hasat_source_example import SOURCE

from hasat.testing import conformance


class TestExample(conformance(SOURCE)):
    """What Hasat promises, checked against this source and its simulator."""
