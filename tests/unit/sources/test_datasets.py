"""What every dataset of the built-in sources allows the platform to do with it."""

import pickle

import pytest

from hasat.feed.dataset import Dataset
from hasat.source.installed import all_datasets


@pytest.mark.parametrize("dataset", all_datasets(), ids=lambda dataset: dataset.name)
def test_another_process_can_receive_it(dataset: Dataset) -> None:
    # Archives of large datasets are written in a process of their own.
    assert pickle.loads(pickle.dumps(dataset)) == dataset  # noqa: S301 - its own bytes
