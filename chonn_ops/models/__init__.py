"""Models with circuits in them, called as their hosts call the plain ones."""

from chonn_ops.models.cno import CNOUNet
from chonn_ops.models.fno import CHONNFNO1d, CHONNFNO2d, CHONNFNO3d
from chonn_ops.models.network import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d
from chonn_ops.models.step import CHONNStep1d, CHONNStep2d, CHONNStep3d
from chonn_ops.models.unet import CHONNUNet1d, CHONNUNet2d, CHONNUNet3d

__all__ = [
    "CHONNFNO1d",
    "CHONNFNO2d",
    "CHONNFNO3d",
    "CHONNNetwork1d",
    "CHONNNetwork2d",
    "CHONNNetwork3d",
    "CHONNStep1d",
    "CHONNStep2d",
    "CHONNStep3d",
    "CHONNUNet1d",
    "CHONNUNet2d",
    "CHONNUNet3d",
    "CNOUNet",
]
