"""Every program of Debian's that uses rdma_cm, between UCM and Linux, in both directions."""

import functools

from guest import PATHS, InteropLab
from lab import Path
from programs import rping


def rping_sizes(lab: InteropLab, path: Path):
    for size in ("64", "4096", "65535"):
        rping(lab, path, "-v", "-S", size, count=20)


def on_path(function, kind: str):
    @functools.wraps(function)
    def case(lab: InteropLab):
        function(lab, lab.path(kind))

    return case


CASES = {f"{name}.{kind}": on_path(function, kind) for name, function in (("rping", rping_sizes),) for kind in PATHS}
