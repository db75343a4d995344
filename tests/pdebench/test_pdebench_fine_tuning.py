"""Trainings that go on from a checkpoint in PDEBench's runner, and from published weights by the
snippet of docs/hosts.md."""

import re
from pathlib import Path

import pytest
import torch

from chonn_ops import CHONNNetwork2d

pytestmark = pytest.mark.host
LOSS = r"epoch: (\d+), .* testL2: (\S+)"
PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"


def test_training_goes_on_from_published_weights(tmp_path, pdebench, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(
        r"```python\n([^`]*FILE_chonn-network.pt.*?)```", PAGE.read_text(), re.DOTALL
    )
    exec(code, {})
    path = Path("FILE_chonn-network.pt").rename("2D_Darcy_chonn-network.pt")
    pdebench(tmp_path, "darcy", model_name="chonn_network", continue_training=True)
    trained = CHONNNetwork2d.from_pretrained("darcy-small")
    found = torch.load(path, weights_only=True)
    assert found["epoch"] == 0
    state = {name.removeprefix("model."): x for name, x in found["model_state_dict"].items()}
    for name, value in trained.state_dict().items():
        # Two steps of Adam at the snippet's rate.
        torch.testing.assert_close(state[name], value, rtol=0, atol=2.1e-3, msg=name)
    assert not torch.equal(state["head.source.bias"], trained.head.source.bias)


@pytest.mark.parametrize("name", ["chonn_network", "FNO"])
def test_training_goes_on_with_an_epoch_without_a_validation(tmp_path, pdebench, name):
    """PDEBench's own Darcy config validates every second epoch, and its FNO trainer printed the
    loss of a validation that had not been: an UnboundLocalError behind the first epoch."""
    settings = {"model_name": name, "model_update": 2, "seed": 0}
    for folder in ("alone", "cut"):
        (tmp_path / folder).mkdir()
    alone = pdebench(tmp_path / "alone", "darcy", epochs=4, **settings)
    pdebench(tmp_path / "cut", "darcy", epochs=1, **settings)
    cut = pdebench(tmp_path / "cut", "darcy", epochs=4, continue_training=True, **settings)

    def losses(printed):
        return {int(epoch): float(loss) for epoch, loss in re.findall(LOSS, printed)}

    assert losses(cut).keys() == {1, 2, 3}
    assert losses(cut)[2] == losses(alone)[2]
    assert ("calibrated by 18 samples" in alone) == (name == "chonn_network")
    assert "calibrated" not in cut
