"""timm's integration: its registry gets the vision models of chonn-ops."""

from __future__ import annotations


def install() -> None:
    """Register the models with the timm that is loaded; a second call does nothing."""
    # Imported here: it imports timm, which must be loaded completely first.
    from chonn_ops.models import chonn

    if hasattr(chonn, "install"):  # Otherwise it is what imports timm, and it registers them next.
        chonn.install()
