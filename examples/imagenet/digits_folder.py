"""Write scikit-learn's digits as an ImageFolder, to try a training recipe on a CPU.

The 1,797 images are enlarged from 8 x 8 to 32 x 32. Every fifth image of a class is for validation.

    python examples/imagenet/digits_folder.py digits/
    python examples/imagenet/digits_folder.py digits/ --per-class 20
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SIZE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="gets train/<class>/ and validation/<class>/")
    parser.add_argument("--per-class", type=int, help="images of each class; default: all")
    args = parser.parse_args()
    written = write(args.folder, args.per_class)
    print(f"wrote {written['train']} + {written['validation']} images to {args.folder}")


def write(folder: Path, per_class: int | None = None) -> Counter[str]:
    """Write the images; return the number of images in each split.

    Raises
    ------
    SystemExit
        If the folder has a split already, or `per_class` leaves one of them empty.
    """
    if per_class is not None and per_class < 5:
        raise SystemExit(f"--per-class: expected at least 5, got {per_class}")
    for split in ("train", "validation"):
        if (folder / split).exists():
            raise SystemExit(f"{folder / split} exists: choose another folder")
    digits = load_digits()
    seen: Counter[int] = Counter()
    written: Counter[str] = Counter()
    for values, label in zip(digits["images"], digits["target"].tolist(), strict=True):
        seen[label] += 1
        if per_class is not None and seen[label] > per_class:
            continue
        split = "train" if seen[label] % 5 else "validation"
        path = folder / split / str(label) / f"{seen[label]:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        # The values range from 0 to 16.
        image = Image.fromarray(np.round(values * (255 / 16)).astype(np.uint8))
        image.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(path)
        written[split] += 1
    return written


if __name__ == "__main__":
    main()
