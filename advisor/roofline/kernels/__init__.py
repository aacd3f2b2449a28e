"""Step time from kernel times that a profiler measured on the device itself."""

from advisor.roofline.kernels.attention import joint_attention
from advisor.roofline.kernels.experts import ExpertTimes
from advisor.roofline.kernels.measured import KernelProfile, ProfiledEngine, measured_step
from advisor.roofline.kernels.roles import KernelRow, StepCurves, step_curves
from advisor.roofline.kernels.rows import AttentionRows, ExpertRows, KernelCurve
from advisor.roofline.kernels.step import KernelStep, StepGap, graph_sizes
from advisor.roofline.kernels.tail import DecodeTail, decode_tail

__all__ = [
    "AttentionRows",
    "DecodeTail",
    "ExpertRows",
    "ExpertTimes",
    "KernelCurve",
    "KernelProfile",
    "KernelRow",
    "KernelStep",
    "ProfiledEngine",
    "StepCurves",
    "StepGap",
    "decode_tail",
    "graph_sizes",
    "joint_attention",
    "measured_step",
    "step_curves",
]
