# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What this machine and its accelerators are called."""

import contextlib
import platform

import torch


def processor_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def accelerator_name(name):
    """The full name of an accelerator, where PyTorch has one for it."""
    with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError):
        device = torch.device(name.split("#")[0])
        return torch.get_device_module(device).get_device_name(device)
    return name
