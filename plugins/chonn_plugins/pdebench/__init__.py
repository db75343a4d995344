"""Models for PDEBench's own runner, which this plugin runs on current versions of its dependencies.

``python -m pdebench.models.train_models_forward +args=config_Darcy.yaml
++args.model_name=chonn_unet ++args.ckb.order=2`` works once chonn-ops is installed: Hydra finds
`hydra_plugins.chonn`, which registers the callback in `chonn_plugins.pdebench.callback`. PDEBench's
code is called, never copied. Attributes of its modules that fail on current dependencies are
replaced while a job runs and restored afterwards.

Models are found through the entry-point group ``pdebench.models``: see `HostModel`.
"""

from pathlib import Path

from chonn_plugins.pdebench.contract import HostModel, JobError

CONFIG_DIR = Path(__file__).parent / "config"

__all__ = ["CONFIG_DIR", "HostModel", "JobError"]
