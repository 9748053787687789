"""Sweeps that cannot be started, and the sentence that each is answered with."""

from tests.config.wrong_input import train

WRONG_SWEEPS = [
    train("-m pos=none,rope sed=1,2", "sed is not a key; did you mean seed"),
    train("-m pos=rope,sinusoidal pos.scale=1.0,2.0", "pos.scale is not a key with pos=rope: use separate sweeps"),
    train("-m +sweep=positions pos.base=1000", "pos.base is not a key with pos=none: use separate sweeps"),
    train("-m pos=none,rop", "pos=rop is not a choice; did you mean pos=rope"),
    train("-m +sweep=position", "sweep=position is not a choice; did you mean sweep=positions"),
    train("-m sweep=positions", "To append to your default list use +sweep=positions"),
    train("-m +sweep=positions sed=1", "sed is not a key; did you mean seed"),
    train("-m pos=none,rope hydra/launcher=slrum", "did you mean hydra/launcher=slurm"),
    train("-m seed=0,1 hydra.sweeper.max_batch_size=0", "hydra.sweeper.max_batch_size=0 must be at least 1"),
    train("-m seed=0,1 hydra.sweeper.max_batch_size=1,2", "max_batch_size=1,2 cannot be swept: the jobs of a sweep sh"),
    train("-m name=a,b", "name=a,b cannot be swept: the runs of a sweep are compared in one folder"),
    train("-m experiment=smoke,kjv_long", "named smoke and kjv_long: set name=, to compare them in one folder"),
    train("-m data=text data.path={root}/README.md,{root}/train.py", "the runs would be named README and train: set"),
    train(
        "-m data=text data.path={root}/README.md,{root}/docs/../README.md",
        "the runs would be named README, but compared in kjv_tiny: set name=",
    ),
    train("-m +sweep=positions,families", "+sweep=positions,families cannot be swept: a sweep is one command"),
    train("-m seed=0,1 steps=0", "steps=0 must be at least 1"),
    train("-m seed=0,1 name=../x", "name=../x must be a plain folder name"),
    train(
        "-m pos=sinusoidal,learned pos.scale=0.1", "pos.scale is not a key of the default choice of its group: use ++"
    ),
    train("-m pos=sinusoidal,rope ++pos.scale=0.1", "pos.scale is not a key with pos=rope: use separate sweeps"),
    train("-m seed=0,1 hydra/launcher=joblib ++hydra.launcher.n_job=3", "did you mean hydra.launcher.n_jobs"),
    train("-m seed=0,1 optim.lr=fast", "optim.lr=fast must be a finite number"),
    train("-m optim.lr=0.001,fast", "optim.lr=fast must be a finite number"),
    train("-m data=text data.path=/nowhere pos=rope,none", "data.path=/nowhere does not exist"),
    train(
        "-m pos=rope,xpos objective=causal,masked", "Xpos needs a causal model: use objective=causal, or another pos"
    ),
    train("-m +sweep=positions attention=linear", "supports only schemes that rotate queries and keys or add to the"),
    train("-m seed=0,1 model.heads=4,3", "model.width=128 must be a multiple of model.heads=3"),
    train("-m schedule.warmup=10,1000 steps=300", "must each be at most steps=300, not 1000"),
    train("-m experiment=tuned pos=rope seed=1000", "seed=1000 is used by the search"),
    train(
        "-m seed=0,1 intervention=only_layers intervention.in_layers=[4]", "in_layers=[4] must be different ones of the"
    ),
    train("-m experiment=tuned pos=rope steps=10,20", "steps cannot be swept here"),
    train("-m hydra/sweeper=best_against_best", "pos is missing: this search compares"),
    train("-m hydra/launcher=joblib hydra.launcher.njobs=2", "did you mean hydra.launcher.n_jobs"),
    train("-m hydra/launcher=slurm hydra.launcher.partion=gpu", "did you mean hydra.launcher.partition"),
    train("-m hydra/launcher=joblib hydra.launcher.n_jobs=0", "hydra.launcher.n_jobs=0 must be at least 1"),
    train("-m hydra/launcher=joblib hydra.launcher.n_jobs=two", "hydra.launcher.n_jobs=two must be at least 1"),
    train("-m seed=range(0,1000000000)", "seed=range(0,1000000000) has too many values"),
    train(f"-m seed=range(0,1{400 * '0'})", "has too many values: a sweep has at most 10,000 runs"),
    train("-m seed=range(0,5,0)", "its step must not be 0"),
    train("-m checkpoint_seconds=1,2", "checkpoint_seconds=1,2 cannot be swept: it does not affect the curve"),
    train("-m logger=csv,wandb", "logger=csv,wandb cannot be swept: it does not affect the curve"),
    train("-m seed=range(0,nan)", "seed=range(0,nan) has too many values"),
    train("-m seed=range(5,1)", "seed=range(5,1) has no values"),
    train("-m seed=0,1,0", "seed=0,1,0 has duplicates"),
    train("-m pos.base=1e4,10000", "pos.base=1e4,10000 has duplicates"),
    train("-m pos=none,rope model.heads=4,128", "head_dim=1 with fraction=1.0 rotates 1 channels"),
    train("-m experiment=tuned hydra.sweeper.search_seed=x", "hydra.sweeper.search_seed=x must be an integer"),
    train("-m experiment=tuned hydra.sweeper.grid=null", "hydra.sweeper.grid=None must list one or more values"),
    train("-m hydra.sweeper.params.seed=8", "hydra.sweeper.params.seed cannot be set: sweep with -m seed=..."),
    train("-m experiment=tuned pos=rope +hydra.sweeper.grid={optim.rl:[1]}", "optim.rl is not a key with any pos"),
    train("-m experiment=tuned hydra.sweeper.grid={optim.lr:[0.1,-1]}", "optim.lr=-1 must be above 0"),
    train(
        "-m experiment=tuned pos=rope +hydra.sweeper.grid={model.heads:[4,3]}",
        "model.width=128 must be a multiple of model.heads=3",
    ),
    train("-m seed=range(0,200) context=range(4,200)", "this sweep has 39,200 runs; the maximum is 10,000"),
    train("-m pos=glob(*)", "pos=glob(*) cannot be swept: list the values"),
    train("-m optim.lr=interval(0,1)", "optim.lr=interval(0,1) cannot be swept: list the values"),
]

FORGOTTEN_MULTIRUN = [
    train("seed=1,2", "seed=1,2 is a sweep: add -m"),
    train("pos=rope,none", "pos=rope,none is a sweep: add -m"),
    train("seed=range(0,3)", "seed=range(0,3) is a sweep: add -m"),
    train("hydra/launcher=joblib", "hydra/launcher=joblib is a sweep: add -m"),
    train("hydra/launcher=slurm experiment=smoke", "hydra/launcher=slurm is a sweep: add -m"),
    train("hydra/sweeper=best_against_best", "hydra/sweeper=best_against_best is a sweep: add -m"),
    train("+sweep=positions", "+sweep=positions is a sweep: add -m"),
    train("experiment=tuned", "experiment=tuned is a sweep: add -m"),
    train("experiment=families pos=rope", "experiment=families is a sweep: add -m"),
]
