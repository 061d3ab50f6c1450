# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A pretend accelerator: what Kerf does with streams, events, pinned memory and several devices,
tested where there is no GPU. `import pretend; pretend.register()` gives PyTorch the device
"pretend" (two of them), and this module as torch.pretend.

Memory is the host's, kernels are the CPU's: results equal the CPU's bit for bit. The rest is as
strict as CUDA. Streams are threads, and copies run on them. Memory has a limit, when given one.
Freed memory is rubbish at once for all streams but the one that allocated it, unless record_stream
gave it to them. And every use of memory is checked against the work that used it before: races()
tells of those not waited for, whether or not the numbers came out right this time. Kernels take
their turn in the current stream, but the calling thread waits for them; for races() they are the
stream's work, as on a GPU.

Isolation. A process in which PyTorch has an accelerator is another world: torch.accelerator
answers, devices are chosen by default, tests that skip without one run. So no process of other
tests registers it. A test asks for the fixture `pretend_device`, which is this module, set back to
no limits and no delays; it is collected as others are, and run in a child process kept for such
tests, one for each pytest process (conftest.py, pretend_child.py). Files of them are named
test_pretend_*.py, and touch no device while they are imported. To debug a test in the process that
you started, set KERF_PRETEND_HERE=1.

Gaps to know: CPU kernels that touch pinned memory are not seen by races() (a copy delay shows
them); all threads of the host count as one; kernels' scratch memory is not counted; there are no
sparse tensors, no DLPack, and no recorded graphs of kernels.
"""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
_native = None


def extension_path():
    """The built extension, or None. KERF_BUILD_DIR names the build tree; else it is that of the
    imported kerf when that runs from one, else build/release."""
    builds = [ROOT / "build" / "release"]
    kerf = importlib.util.find_spec("kerf")
    if kerf and kerf.origin:
        builds.insert(0, Path(kerf.origin).parents[2])
    if "KERF_BUILD_DIR" in os.environ:
        builds = [Path(os.environ["KERF_BUILD_DIR"])]
    for build in builds:
        for found in sorted((build / "tests").glob("_pretend_device.*.so")):
            return found
    return None


def expected_to_be_built():
    """Whether build/release is to hold the extension: a developer's tree, with PyTorch."""
    cache = ROOT / "build" / "release" / "CMakeCache.txt"
    if not cache.exists():
        return False
    options = dict(line.partition("=")[::2] for line in cache.read_text().splitlines())
    wanted = ("KERF_DEVELOPER_MODE", "KERF_WITH_TORCH", "KERF_WITH_PYTHON")
    return all(options.get(f"{name}:BOOL") in ("ON", "TRUE", "1") for name in wanted)


def registered():
    return _native is not None


def register(num_devices=2):
    """Gives PyTorch the device. For the rest of the process: there is no way back."""
    global _native
    if _native is not None:
        return sys.modules[__name__]
    path = extension_path()
    if path is None:
        raise RuntimeError(
            "the pretend device is not built: "
            "cmake --build build/release --target kerf_pretend_device"
        )
    spec = importlib.util.spec_from_file_location("_pretend_device", path)
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    native.set_device_count(num_devices)
    torch.utils.rename_privateuse1_backend("pretend")
    torch._register_device_module("pretend", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _native = native
    return sys.modules[__name__]


def reset():
    """Back to no limits, no delay, no races noted; waits for all streams first. Seeds stay."""
    _native.set_copy_delay(0.0)
    _native.hold_copies(False)
    _native.synchronize_all()
    for device in range(device_count()):
        _native.set_limit(device, None)
        _native.reset_peak(device)
    _native.clear_races()


# ---- what tests turn and read -------------------------------------------------------------------


def set_copy_delay(seconds):
    """Every copy from, to or between devices takes this much longer, on its stream."""
    _native.set_copy_delay(seconds)


@contextlib.contextmanager
def copy_delay(seconds):
    set_copy_delay(seconds)
    try:
        yield
    finally:
        set_copy_delay(0.0)


@contextlib.contextmanager
def copies_held():
    """No copy from, to or between devices finishes until the end of the block. What waits for one
    in it waits for ever: synchronize(), copies that block, a kernel behind a copy in its stream."""
    _native.hold_copies(True)
    try:
        yield
    finally:
        _native.hold_copies(False)


def races():
    """Sentences: work that used memory without waiting for other work on it."""
    return _native.races()


def take_races():
    """As races(), which then is empty."""
    found = _native.races()
    _native.clear_races()
    return found


def set_limit(device, num_bytes):
    """Past this many bytes the device is out of memory; None for no limit."""
    _native.set_limit(_index(device), num_bytes)


def memory_allocated(device=None):
    return _native.usage(_index(device))[0]


def max_memory_allocated(device=None):
    return _native.usage(_index(device))[1]


def num_allocations(device=None):
    return _native.usage(_index(device))[3]


def reset_peak(device=None):
    _native.reset_peak(_index(device))


def mem_get_info(device=None):
    """Free and total bytes; of 16 GiB where there is no limit."""
    allocated, _, limit, _ = _native.usage(_index(device))
    total = 16 << 30 if limit is None else limit
    return max(0, total - allocated), total


def pinned_memory_allocated():
    return _native.pinned_memory_allocated()


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated
reset_peak_memory_stats = reset_peak


# ---- what PyTorch, and code written for torch.cuda, asks of torch.<device> ----------------------

Stream = torch.Stream
Event = torch.Event


def _index(device):
    if device is None:
        return _native.current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return _native.current_device() if index is None else index


def _device(device=None):
    return torch.device("pretend", _index(device))


def is_available():
    return _native is not None


def is_initialized():
    return _native is not None


def init():
    pass


def _lazy_init():
    pass


def _is_in_bad_fork():
    return False


def device_count():
    return _native.device_count()


def current_device():
    return _native.current_device()


def set_device(device):
    _native.exchange_device(_index(device))


class device:  # noqa: N801, torch.cuda.device is called so
    def __init__(self, device):
        self.index = _index(device)

    def __enter__(self):
        self.before = _native.exchange_device(self.index)

    def __exit__(self, *_):
        _native.exchange_device(self.before)


def get_device_name(device=None):
    return f"Pretend device {_index(device)}"


def get_device_capability(device=None):
    return (1, 0)


def current_stream(device=None):
    return torch.accelerator.current_stream(_device(device))


def set_stream(stream):
    torch.accelerator.set_stream(stream)


def stream(stream):
    return stream if stream is not None else contextlib.nullcontext()


def synchronize(device=None):
    torch.accelerator.synchronize(_device(device))


def empty_cache():
    pass


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True


def default_generator(device=None):
    return _native.default_generator(_index(device))


def manual_seed(seed):
    default_generator().manual_seed(seed)


def manual_seed_all(seed):
    for device in range(device_count()):
        default_generator(device).manual_seed(seed)


def initial_seed():
    return default_generator().initial_seed()


def get_rng_state(device=None):
    return default_generator(device).get_state()


def set_rng_state(state, device=None):
    default_generator(device).set_state(state)


def get_rng_state_all():
    return [get_rng_state(device) for device in range(device_count())]


def set_rng_state_all(states):
    for device, state in enumerate(states):
        set_rng_state(state, device)
