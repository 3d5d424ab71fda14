"""Runs an example whose peer imports much more than the example uses, without that rest.

``streaming`` imports clouds and transformers, ``megatron.core`` everything that trains. The examples use their writers and datasets, which are the
peers' own here too; only what the packages import beside them is left out, because the tests do not install it.
"""

import runpy
import sys

from tests.formats.mosaic import bare_packages


def main(example: str) -> None:
    """Ready the packages, then run."""
    if "tensorboard" in example:
        # It reads the same without TensorFlow, whose libraries and PyTorch's do not go together in one process.
        sys.modules["tensorflow"] = None  # type: ignore[assignment]
    bare_packages("streaming", "streaming.base", "megatron.core", "megatron.core.datasets")
    if "mosaic" in example:
        from streaming.base.dataset import StreamingDataset
        from streaming.base.format.mds.writer import MDSWriter

        vars(sys.modules["streaming"]).update(MDSWriter=MDSWriter, StreamingDataset=StreamingDataset)
    elif "megatron" in example:
        import megatron.core.parallel_state  # noqa: F401 - first, since it and its neighbours import each other
    runpy.run_path(example, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
