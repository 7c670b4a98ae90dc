"""Lines of progress with the seconds since the start."""

import time

START = time.time()


def log(*words: object) -> None:
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)
