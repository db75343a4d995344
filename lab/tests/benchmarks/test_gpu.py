"""The GPU benchmark without a GPU."""

import pytest
import torch

from chonn_lab.benchmarks import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_it_says_what_it_needs(capsys):
    with pytest.raises(SystemExit, match="2"):
        gpu.main(["--smoke"])
    assert "expected another --output" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="expected a CUDA GPU, found none"):
        gpu.main([])
