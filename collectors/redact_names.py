"""Names: which environment variables may be kept, and which names stand for a secret.

What matters in a hang is kept by prefix or by name; everything else is masked without being looked at. A
name that a kept prefix lets through, but that has a word for a secret in it, is masked too. Sources of the
tables: NCCL's ``env.rst``, torch's ``ProcessGroupNCCL.hpp`` and ``FlightRecorder.hpp``, torchelastic, Slurm's
``srun`` manual, Open MPI, PMIx, UCX, libfabric, DeepSpeed's and Megatron's launchers. Python >= 3.8,
standard library only.
"""

import re

_PREFIXES = {
    "communication": (
        "NCCL_ RCCL_ GLOO_ UCX_ UCC_ FI_ OFI_NCCL_ NVSHMEM_ SHARP_ HCOLL_ RDMAV_ MLX5_ IBV_ PSM2_ CCL_ HCCL_ "
    ),
    "torch and what is built on it": (
        "TORCH PYTORCH_ PET_ TRITON_ DEEPSPEED_ DS_ DLTS_ ACCELERATE_ FSDP_ MEGATRON_ NVTE_ PL_ "
        "HOROVOD_ XLA_ JAX_ VLLM_ SGLANG_ SGL_ RAY_ "
    ),
    "devices": "CUDA_ CUDNN_ CUBLAS_ NVIDIA_ HIP_ HSA_ ROCR_ GPU_ ZE_",
    "threads and allocators": "OMP_ MKL_ KMP_ GOMP_ OPENBLAS_ NUMEXPR_ MALLOC_ PYTHON",
    "launchers and schedulers": (
        "SLURM_ SLURMD_ SRUN_ OMPI_COMM_ OMPI_UNIVERSE_ OMPI_MCA_ PMI_ PMIX_ MPI_ MV2_ I_MPI_ "
        "HYDRA_ FLUX_ PBS_ LSB_ JSM_ PALS_ LOCAL_WORLD_ GROUP_ ROLE_ JOBSET_ LC_ "
    ),
}
"""By what they are for."""

_NAMES = """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK NNODES NUM_NODES NPROC_PER_NODE CROSS_RANK
    CROSS_SIZE MASTER_ADDR MASTER_PORT TP_SOCKET_IFNAME TOKENIZERS_PARALLELISM
    HOSTNAME NODE_NAME NODE_IP POD_NAME POD_IP POD_NAMESPACE JOB_NAME JOB_ID JOB_COMPLETION_INDEX
    KUBERNETES_SERVICE_HOST
    LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT PATH HOME PWD TMPDIR TMP TEMP SHELL LANG TZ TERM USER LOGNAME
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV XDG_RUNTIME_DIR
    HF_HOME HF_HUB_OFFLINE HF_HUB_CACHE HF_DATASETS_CACHE HF_DATASETS_OFFLINE HF_ENDPOINT
    HF_HUB_ENABLE_HF_TRANSFER TRANSFORMERS_CACHE TRANSFORMERS_OFFLINE
    WANDB_MODE WANDB_DIR WANDB_DISABLED WANDB_PROJECT WANDB_RUN_ID WANDB_START_METHOD WANDB_SILENT
"""

_WORDS = """
    PASS PASSWD PASSWORD PASSPHRASE PSWD PWD SECRET SECRETS CRED CREDS CREDENTIAL CREDENTIALS
    AUTH AUTHKEY AUTHTOKEN AUTHORIZATION OAUTH COOKIE COOKIES SESSION JWT BEARER PRIVATE
    SIGNATURE SAS DSN PSK HMAC SALT CERT CERTIFICATE PEM PFX KEYTAB KEYSTORE KUBECONFIG NONCE
    WEBHOOK LICENSE LICENCE KEY KEYS URI URL OTP MFA PAT
"""

KEPT_PREFIXES = tuple(prefix for group in _PREFIXES.values() for prefix in group.split())
KEPT_NAMES = frozenset(_NAMES.split())
_SECRET_WORDS = frozenset(_WORDS.split())
"""Whole words of a name, the digits at their end taken off."""

_SECRET_PARTS = (
    "TOKEN",
    "PASSW",
    "SECRET",
    "APIKEY",
    "ACCESSKEY",
    "PRIVATEKEY",
    "CREDENTIAL",
    "ENCRYPT",
    "KRB5",
)
"""Anywhere in a name without its separators: ``accessToken``, ``apiKey``, ``MYSQLPASSWD``."""

_HARMLESS = re.compile(
    r"TOKENIZERS?(?:_(?:PARALLELISM|PATH|NAME|NAME_OR_PATH|TYPE|MODEL|MODE|CLASS))?"
    r"|(?:\w+_)?(?:MAX|MIN|NUM|N|TOTAL|BATCH|BATCHED|NEW|GENERATED|PROMPT|COMPLETION|SEEN|TRAIN|CONSUMED)"
    r"_(?:\w+_)?TOKENS(?:_PER_\w+)?"
    r"|(?:\w+_)?TOKENS_(?:PER|SEEN|CONSUMED|PROCESSED)(?:_\w+)?"
    r"|(?:\w+_)?(?:EOS|BOS|PAD|UNK|MASK|SEP|CLS|EOD|IMAGE|SPECIAL|STOP|IGNORE)_TOKENS?(?:_IDS?)?"
    r"|TOKENS?_(?:IDS?|COUNT|TYPE_IDS|LEN|LENGTH|SHIFT|IDX|DISPATCHER)|MOE_TOKEN_\w+"
    r"|NCCL_IB_PKEY"
)
"""Names that look like secrets and are none: token counts and ids, a partition key's number."""

_SEPARATORS = re.compile(r"[^A-Z0-9]+")


def may_be_kept(name: str) -> bool:
    """Whether an environment variable's value may leave the node."""
    return (name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)) and not is_secret(name)


def is_secret(name: str) -> bool:
    """Whether a variable, option, key or local of that name holds a secret: ``HF_TOKEN``, ``api-key``."""
    if name in ("PWD", "OLDPWD"):
        return False
    upper = name[:200].upper()
    words = [word for word in _SEPARATORS.split(upper) if word]
    if _HARMLESS.fullmatch("_".join(words)):
        return False
    if any(word.rstrip("0123456789") in _SECRET_WORDS for word in words) or words[-1:] == ["PROXY"]:
        return True
    joined = "".join(words)
    return any(part in joined for part in _SECRET_PARTS)


def harmless_before(text: str, start: int, end: int) -> bool:
    """Whether the word around ``text[start:end]``, up to ``end``, is a harmless name (``pad_token``)."""
    first = start
    while first > max(0, start - 40) and (text[first - 1].isalnum() or text[first - 1] in "_-"):
        first -= 1
    words = [word for word in _SEPARATORS.split(text[first:end].upper()) if word]
    return _HARMLESS.fullmatch("_".join(words)) is not None
