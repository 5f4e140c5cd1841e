"""System call names by number, for the calls that can block. From the kernel's own tables
(arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, Linux 6.18)."""

from __future__ import annotations

X86_64 = {
    0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10: "mprotect",
    11: "munmap", 12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
    23: "select", 25: "mremap", 26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile",
    42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone",
    57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 65: "semop", 69: "msgsnd", 70: "msgrcv", 72: "fcntl",
    73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 78: "getdents", 82: "rename",
    83: "mkdir", 84: "rmdir", 87: "unlink", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 137: "statfs",
    138: "fstatfs", 149: "mlock", 162: "sync", 202: "futex", 208: "io_getevents", 209: "io_submit",
    217: "getdents64", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait", 243: "mq_timedreceive",
    247: "waitid", 257: "openat", 258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 264: "renameat",
    270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range", 281: "epoll_pwait",
    285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs",
    307: "sendmmsg", 316: "renameat2", 326: "copy_file_range", 332: "statx", 333: "io_pgetevents",
    426: "io_uring_enter", 435: "clone3", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
    455: "futex_wait",
}  # fmt: skip

GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat",
    43: "statfs", 44: "fstatfs", 45: "truncate", 46: "ftruncate", 47: "fallocate", 56: "openat",
    61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 79: "newfstatat",
    80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
    183: "mq_timedreceive", 188: "msgrcv", 189: "msgsnd", 192: "semtimedop", 193: "semop", 202: "accept",
    203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 214: "brk", 215: "munmap",
    216: "mremap", 220: "clone", 221: "execve", 222: "mmap", 226: "mprotect", 227: "msync", 228: "mlock",
    233: "madvise", 242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 269: "sendmmsg",
    276: "renameat2", 285: "copy_file_range", 291: "statx", 292: "io_pgetevents", 4: "io_getevents",
    426: "io_uring_enter", 435: "clone3", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
    455: "futex_wait",
}  # fmt: skip

TABLES = {"x86_64": X86_64, "aarch64": GENERIC, "arm64": GENERIC, "riscv64": GENERIC}


def syscall_name(machine: str, number: int) -> str | None:
    """The name of a blocking system call; None for others and for machines without a table.

    >>> syscall_name("x86_64", 202), syscall_name("aarch64", 98), syscall_name("s390x", 98)
    ('futex', 'futex', None)
    """
    return TABLES.get(machine, {}).get(number)
