from kraftfast.record.builder import Values

NO_RECORDS: tuple[int, int]

def add_digest(digest: tuple[int, int], values: Values) -> tuple[int, int]: ...
