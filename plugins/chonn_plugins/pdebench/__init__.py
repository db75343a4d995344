"""PDEBench's own runner trains registered models, on current versions of its dependencies.

``python -m pdebench.models.train_models_forward +args=config_Darcy.yaml
++args.model_name=chonn_unet ++args.ckb.order=2`` works as soon as chonn-ops is installed: Hydra
finds `hydra_plugins.chonn`, which registers the callback in `chonn_plugins.pdebench.callback`.
Everything PDEBench is called, never copied; what it trips over is replaced in its modules while a
job runs, and put back afterwards.

Models are found through the entry-point group ``pdebench.models``: see `HostModel`.
"""

from pathlib import Path

from chonn_plugins.pdebench.contract import HostModel, JobError

CONFIG_DIR = Path(__file__).parent / "config"

__all__ = ["CONFIG_DIR", "HostModel", "JobError"]
