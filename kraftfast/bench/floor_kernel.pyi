HOW: dict[str, int]
FILES: dict[str, int]

def run(
    directory: str,
    *,
    value_bytes: int,
    batch_bytes: int,
    batches: int,
    window: int,
    durable: bool,
    how: str,
    files: str,
    keep_bytes: int = 0,
) -> dict[str, float]: ...
