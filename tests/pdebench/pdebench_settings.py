"""Settings of small jobs of PDEBench."""

# Every setting that makes a job small; PDEBench's configs supply the rest.
SMALL = {
    # 18 samples to train on and 2 to validate with: two steps an epoch.
    "batch_size": 16,
    "epochs": 1,
    "num_workers": 0,
    "reduced_resolution": 1,
    "reduced_resolution_t": 1,
    "modes": 4,
    "width": 6,
    "unroll_step": 1,
    "training_type": "autoregressive",
}
# What PDEBench's configs say of a job, for tests that make one without them.
BASE = {
    "single_file": True,
    "if_training": True,
    "continue_training": False,
    "initial_step": 1,
    "t_train": 2,
    "reduced_batch": 1,
    "ar_mode": False,
    "pushforward": False,
}
