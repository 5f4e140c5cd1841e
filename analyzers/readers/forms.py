"""Every form of loose evidence that can be read: one line a form.

The order matters for file forms only: the first that recognises a file reads it.
"""

from __future__ import annotations

from .cuda_gdb import FORM as CUDA_GDB
from .deepspeed_launcher import FORM as DEEPSPEED_LAUNCHER
from .elastic_table import FAILURES_FORM as ELASTIC_TABLE
from .elastic_table import START_FORM as ELASTIC_START
from .elastic_text import FORM as ELASTIC_TEXT
from .faulthandler import FORM as FAULTHANDLER
from .flight_json import FORM as FLIGHT_JSON
from .flight_pickle import FORM as FLIGHT_PICKLE
from .fr_analyzer_text import FORM as FR_ANALYZER_TEXT
from .gdb_python import FORM as GDB_PYTHON
from .gdb_text import FORM as GDB_TEXT
from .gloo_text import FORM as GLOO_TEXT
from .gpu_lines import FORM as GPU_LINE
from .gpustat_text import FORM as GPUSTAT
from .horovod_text import OPERATIONS as HOROVOD_OPERATIONS
from .horovod_text import TABLE as HOROVOD_TABLE
from .inference_watchdog import FORM as INFERENCE_WATCHDOG
from .interface import Form
from .kernel_hung_task import FORM as KERNEL_HUNG_TASK
from .kernel_oom import FORM as KERNEL_OOM
from .kernel_text import AER as KERNEL_AER
from .kernel_text import HOST as KERNEL_HOST
from .kernel_text import XID as KERNEL_XID
from .monitored_barrier import FORM as MONITORED_BARRIER
from .nccl_collective import FORM as NCCL_COLLECTIVE
from .nccl_life import FORM as NCCL_LIFE
from .nccl_network import FORM as NCCL_NETWORK
from .nccl_warning import FORM as NCCL_WARNING
from .nvidia_smi_q import FORM as NVIDIA_SMI_Q
from .nvidia_smi_table import FORM as NVIDIA_SMI_TABLE
from .nvidia_smi_xml import FORM as NVIDIA_SMI_XML
from .proc_stack import FORM as PROC_STACK
from .ps_text import FORM as PS_TEXT
from .py_spy_json import FORM as PY_SPY_JSON
from .py_spy_text import FORM as PY_SPY_TEXT
from .pystack_dump import FORM as PYSTACK_DUMP
from .ras_json import FORM as RAS_JSON
from .ras_monitor import FORM as RAS_MONITOR
from .ras_text import FORM as RAS_TEXT
from .ray_text import ACTORS as RAY_ACTORS
from .ray_text import ERROR as RAY_ERROR
from .ray_text import LINE as RAY_LINE
from .ray_text import STATUS as RAY_STATUS
from .sacct_table import FORM as SACCT_TABLE
from .slurm_text import FORM as SLURM_LINE
from .torch_debug_server import FORM as TORCH_DEBUG_SERVER
from .torch_desync import FORM as TORCH_DESYNC
from .torch_failed_stack import FORM as TORCH_FAILED_STACK
from .torch_fingerprint import FORM as TORCH_FINGERPRINT
from .torch_heartbeat import FORM as TORCH_HEARTBEAT
from .torch_store import FORM as TORCH_STORE
from .torch_wait_counters import FORM as TORCH_WAIT_COUNTERS
from .torch_watchdog import FORM as TORCH_WATCHDOG
from .torch_wrapped import FORM as TORCH_WRAPPED
from .traceback_text import FORM as TRACEBACK_TEXT
from .vendor_text import FORM as VENDOR_TRANSPORT
from .xla_text import LINE as XLA_LINE
from .xla_text import PARTICIPANTS as XLA_PARTICIPANTS

FORMS: tuple[Form, ...] = (
    FLIGHT_PICKLE,
    FLIGHT_JSON,
    NCCL_LIFE,
    NCCL_COLLECTIVE,
    NCCL_WARNING,
    NCCL_NETWORK,
    NVIDIA_SMI_XML,
    NVIDIA_SMI_TABLE,
    NVIDIA_SMI_Q,
    GPUSTAT,
    GPU_LINE,
    KERNEL_XID,
    KERNEL_AER,
    KERNEL_HOST,
    KERNEL_OOM,
    KERNEL_HUNG_TASK,
    SLURM_LINE,
    SACCT_TABLE,
    HOROVOD_TABLE,
    HOROVOD_OPERATIONS,
    XLA_PARTICIPANTS,
    XLA_LINE,
    DEEPSPEED_LAUNCHER,
    RAY_ACTORS,
    RAY_ERROR,
    RAY_STATUS,
    RAY_LINE,
    INFERENCE_WATCHDOG,
    VENDOR_TRANSPORT,
    ELASTIC_TABLE,
    ELASTIC_START,
    ELASTIC_TEXT,
    FR_ANALYZER_TEXT,
    GLOO_TEXT,
    MONITORED_BARRIER,
    TORCH_DEBUG_SERVER,
    TORCH_DESYNC,
    TORCH_FAILED_STACK,
    TORCH_FINGERPRINT,
    TORCH_HEARTBEAT,
    TORCH_STORE,
    TORCH_WAIT_COUNTERS,
    TORCH_WATCHDOG,
    TORCH_WRAPPED,
    PY_SPY_JSON,
    PY_SPY_TEXT,
    PYSTACK_DUMP,
    GDB_TEXT,
    GDB_PYTHON,
    CUDA_GDB,
    FAULTHANDLER,
    TRACEBACK_TEXT,
    PROC_STACK,
    PS_TEXT,
    RAS_TEXT,
    RAS_JSON,
    RAS_MONITOR,
)
