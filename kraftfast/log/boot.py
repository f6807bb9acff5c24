"""Which boot of the host this is: no page cache outlives one (D10)."""

from __future__ import annotations

from kraftfast.errors import StorageError

KERNEL_BOOT_ID = "/proc/sys/kernel/random/boot_id"
NEEDS_BOOT_ID = "durability=memory needs it, to know a power cut from the end of a process"


def kernel_boot_id() -> str:
    """Return an id that each boot changes. Raises StorageError where the kernel tells none."""
    try:
        with open(KERNEL_BOOT_ID) as file:
            boot_id = file.read().strip()
    except OSError as error:
        raise StorageError(f"{KERNEL_BOOT_ID}: {error.strerror}; {NEEDS_BOOT_ID}") from None
    if not boot_id:
        raise StorageError(f"{KERNEL_BOOT_ID} is empty; {NEEDS_BOOT_ID}")
    return boot_id
