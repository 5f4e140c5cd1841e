"""HMAC-SHA256 without OpenSSL.

``import hashlib`` maps libcrypto: 4 MB more in a process that is charged to a memory limit which may be
exhausted. CPython carries its own SHA-256 (``_sha256`` up to 3.11, ``_sha2`` from 3.12); where a build
has left it out, hashlib does the work. Python >= 3.8, standard library only.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any, Callable, Optional, Tuple

BLOCK = 64
_sha256: Optional[Callable[[bytes], Any]] = None


def _hash() -> Callable[[bytes], Any]:
    global _sha256
    if _sha256 is None:
        for module in ("_sha256", "_sha2", "hashlib"):
            try:
                _sha256 = import_module(module).sha256
                break
            except ImportError:
                continue
    assert _sha256 is not None
    return _sha256


def hmac_sha256(key: bytes, message: bytes) -> str:
    """The HMAC (RFC 2104) of ``message`` in hex."""
    inner, outer = (state.copy() for state in _keyed(key))
    inner.update(message)
    outer.update(inner.digest())
    result: str = outer.hexdigest()
    return result


@lru_cache(maxsize=2)
def _keyed(key: bytes) -> Tuple[Any, Any]:
    """The inner and outer hash after the key's block, which every message of a capture shares."""
    sha256 = _hash()
    if len(key) > BLOCK:
        key = sha256(key).digest()
    key = key.ljust(BLOCK, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in key)), sha256(bytes(byte ^ 0x5C for byte in key))
