#!/usr/bin/env bash
# The paper's ImageNet-1K recipe, for timm's train.py. README.md names the source of each setting.
#
#   examples/imagenet/train.sh TRAIN_PY DATA [MODEL] [more options of train.py]
#
#   TRAIN_PY   train.py of timm's repository
#   DATA       folder with train/ and val/ (or validation/), each with one folder of images per class
#   MODEL      default: chonn_tiny
#
# Options that come last override those of the recipe. Environment:
#   GPUS=8     number of processes; 0 trains on the CPU, without torchrun
#   BATCH=128  images per process
#   PYTHON     interpreter, default: python
#   DRY_RUN=1  print the command and stop
set -euo pipefail

fail() {
    echo "train.sh: $1" >&2
    exit 2
}

[ $# -ge 2 ] || fail "expected TRAIN_PY DATA [MODEL] [options], got $# arguments"
train_py=$1
data=$2
shift 2
model=chonn_tiny
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    model=$1
    shift
fi
[ -f "$train_py" ] || fail "TRAIN_PY: expected timm's train.py, found no file $train_py"
[ -d "$data" ] || fail "DATA: expected a folder, found none at $data"

gpus=${GPUS:-8}
case $gpus in
'' | *[!0-9]*) fail "GPUS: expected a number, got $gpus" ;;
0) launch=("${PYTHON:-python}") device=cpu ;;
*)
    launch=("${PYTHON:-python}" -m torch.distributed.run --standalone "--nproc-per-node=$gpus")
    device=cuda
    ;;
esac

command=(
    "${launch[@]}" "$train_py"
    --data-dir "$data" --model "$model" --device "$device"
    # Given by the paper.
    --batch-size "${BATCH:-128}" --epochs 300 --warmup-epochs 20 --sched cosine
    --opt adamw --weight-decay 0.05
    --lr-base-scale linear
    --drop-path 0.2
    --img-size 224 --crop-pct 0.875 --interpolation bicubic --train-interpolation bicubic
    # Named by the paper without values. The values are those of Swin and VMamba, whose schedule the paper uses.
    --lr-base 1e-3 --lr-base-size 1024
    --clip-grad 5.0
    --amp --amp-dtype bfloat16
    --model-ema --model-ema-decay 0.9999
    --color-jitter 0.4 --aa rand-m9-mstd0.5-inc1
    --reprob 0.25 --remode pixel
    --mixup 0.8 --cutmix 1.0 --smoothing 0.1
    # Not in the paper.
    --warmup-lr 5e-7 --min-lr 5e-6
    --workers 8 --pin-mem
    "$@"
)

if [ "${DRY_RUN:-0}" != 0 ]; then
    printf '%q ' "${command[@]}"
    echo
    exit
fi

# RandAugment at magnitude 9 sometimes calls posterize with 0 bits. Pillow 12 returns a black image, Pillow 13 raises.
"${PYTHON:-python}" -c '
from PIL import Image
from timm.data.auto_augment import posterize
posterize(Image.new("RGB", (8, 8)), 0)
' || fail "timm's RandAugment fails here; if Pillow is 13: pip install 'pillow<13'"
exec "${command[@]}"
