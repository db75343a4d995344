"""What torch calls at the end of ``import torch`` (entry-point group ``torch.backends``).

This file needs the standard library only. It is installed beside the package's metadata, in
editable installs too, so whoever sees the entry point can import it, even where ``.pth`` files are
not processed or the checkout is gone. Whatever fails behind it, ``import torch`` goes on.

One case is out of our hands: if the metadata are left without this file, torch raises "Failed to
load the backend extension: chonn_ops" and names its switch, ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``. No
code of ours can run then. Therefore both are in the same wheel's RECORD: pip removes both or none.
"""

import contextlib
import os
import sys
import warnings


def autoload() -> None:
    """Watch for timm and neuraloperator (`chonn_plugins.autoload`), unless ``CHONN_AUTOLOAD=0``."""
    if os.environ.get("CHONN_AUTOLOAD") == "0":
        return
    try:
        from chonn_plugins.autoload import arm

        arm()
    except Exception as error:
        message = (
            "chonn-ops: integrations with timm and neuraloperator disabled "
            f"({type(error).__name__}: {error}); CHONN_AUTOLOAD=0 turns them off silently"
        )
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except Exception:  # warnings are errors
            with contextlib.suppress(Exception):  # a closed stream
                print(message, file=sys.stderr)
