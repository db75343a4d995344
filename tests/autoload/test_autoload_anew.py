"""Hosts that are loaded again know us again: reloaded, or purged from `sys.modules` and imported.

Notebooks do both. In processes of their own: the suite's neuralop and timm stay what they are.
"""

import pytest
from autoload_processes import succeeds

MIXED = """
    import importlib, sys
    def purge(*names):
        for name in list(sys.modules):
            if any(name == n or name.startswith(n + ".") for n in names):
                del sys.modules[name]
    def mixed(cls, *args, **keywords):
        model = cls(*args, **keywords, spectral_mixer="ckb")
        assert "CKB" in [type(m).__name__ for m in model.modules()]
        return model
    def fno(cls):
        return mixed(cls, (4, 4), 1, 1, 6, n_layers=2)
    def uno(cls):
        layers = {"n_layers": 1, "uno_out_channels": [6], "uno_n_modes": [[4, 4]]}
        widths = {"hidden_channels": 6, "lifting_channels": 6, "projection_channels": 6}
        return mixed(cls, 1, 1, **layers, **widths, uno_scalings=[[1, 1]], horizontal_skips_map={})
"""


def neuralop(folder, code):
    pytest.importorskip("neuralop")
    run = succeeds(folder, MIXED + code)
    assert "chonn" not in run.stderr


def test_reloaded_model_files_of_neuralop(tmp_path):
    neuralop(
        tmp_path,
        """
    import neuralop.models as models, neuralop.models.fno, neuralop.models.uno
    for _ in range(2):
        old = models.FNO
        importlib.reload(models.fno)
        importlib.reload(models.uno)
        assert models.fno.FNO is not old
        for cls in (old, models.TFNO, models.fno.FNO, models.fno.TFNO):
            fno(cls)
        uno(models.UNO), uno(models.uno.UNO)
        importlib.reload(models)
        assert models.FNO is models.fno.FNO
        fno(models.FNO), fno(models.TFNO), uno(models.UNO)
    early = models.fno.partialclass("Early", models.FNO, factorization="cp", rank=0.5)
    importlib.reload(models.fno)
    late = models.fno.partialclass("Late", models.fno.FNO, factorization="cp", rank=0.5)
    fno(early), fno(late)
    """,
    )


def test_neuralop_imported_again_after_a_purge(tmp_path):
    neuralop(
        tmp_path,
        """
    import io, torch
    from neuralop.models import FNO
    old = FNO
    for gone in ("neuralop.models.fno", "neuralop.models", "neuralop"):
        purge(gone)
        from neuralop.models.fno import FNO, TFNO
        from neuralop.models.uno import UNO
        assert FNO is not old
        fno(FNO), fno(TFNO), fno(old), uno(UNO)
    # All classes are the new neuralop's: what is pickled is found again under its name.
    model = mixed(FNO, (4, 4), 1, 1, 6, n_layers=2, complex_data=True)
    torch.save(model, io.BytesIO())
    """,
    )


def test_reloaded_and_purged_timm(tmp_path):
    pytest.importorskip("timm")
    run = succeeds(
        tmp_path,
        MIXED
        + """
    import timm
    names = timm.list_models("*chonn*")
    assert len(names) == 4
    importlib.reload(timm.models)
    importlib.reload(timm)
    assert timm.list_models("*chonn*") == names
    for gone in ("timm.models", "timm"):
        purge(gone)
        import timm.models
        assert timm.models.list_models("*chonn*") == names
    model = timm.create_model("test_chonn", drop_path_rate=0.1)
    assert any(type(m) is timm.layers.DropPath for m in model.modules())
    assert type(model) is sys.modules["chonn_ops.models.chonn"].CHONN
    """,
    )
    assert "chonn" not in run.stderr
