"""`chonn inspect`: a checkpoint's circuits at data, as a page with pictures and as JSON."""

from chonn_ops.inspection._hosts import Trained
from chonn_ops.inspection._models import load
from chonn_ops.inspection._report import write
from chonn_ops.inspection._samples import Samples, read

__all__ = ["Samples", "Trained", "load", "read", "write"]
