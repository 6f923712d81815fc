"""A catalogue of bad input: what every command answers to it, and that nothing is lost.

A case is a command line, its exit code, and what the message must name. ``@name`` is a file or run
that ``home`` makes. Whatever the case, there is one message without a traceback, what was there
stays as it was, and no run is left that says neither done nor failed.
"""

import json
import os
import pickle
import shlex
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest
from cli.conftest import TINY, Agt
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from agt.errors import AgtError
from agt.store.atomic import Pending
from agt.targets import trusting
from agt_cli import config_files, usage
from agt_cli.checks import check_settings
from agt_cli.cli import main
from agt_cli.composing import compose_command
from agt_cli.jobs import resolve_settings, trusted_code
from agt_cli.report.console import Console
from agt_cli.runs.queries import TrainedRun

Case = tuple[str, int, tuple[str, ...]]

TABLE = "train dataset=table dataset.label=y +dataset.numeric='{a: [-3, 3]}' dataset.path="
LISTS = "train dataset=table dataset.label=y dataset.path=t.csv "
SCANS = "train dataset=medmnist dataset.name=octmnist "
REMOVAL = "train dataset=digits model=linear training=recipe certificate=removal "
SQUARES = f"{REMOVAL}certificate.loss=least_squares certificate.masking=none "
LEARNER = "train certificate=votes ensemble.members=5 +certificate.learner._target_="
STARTED = "start @twice.csv label=y public=yes purpose=both eps=2 "
VECTORS = "train dataset=embeddings dataset.path="
BLOBS = "train dataset.n_train=80 training.epochs=1 model=linear kgrid.max=2 "
HEAD = (
    "train dataset=digits model=linear training=generic certificate=stability "
    "training.loss=binary_cross_entropy "
)
WEIGHTS = "predict run=@head mechanism=release_weights "

CONFIGURED = f"""
start t.csv public=perhaps | 2 | public: unknown value 'perhaps' | ranges
start t.csv purpose=fun | 2 | purpose: unknown value 'fun' | certificates
start t.csv eps=0 | 2 | eps:
start . | 2 | '.' is a folder | the table's file
start t.csv answers=. | 2 | answers=. is a folder
start digits.csv | 2 | one of agt's own | name=my_digits
runs state=lost | 2 | state: unknown value 'lost' | killed
runs command=trian | 2 | command=trian | did you mean 'train'
runs since=yesterday | 2 | since=yesterday | 2026-01-31
train dataset digits | 2 | 'dataset' is not a setting | 'dataset=NAME' | digits
train datset=x | 2 | unknown key 'datset' | did you mean 'dataset'
train +dataset.foo=1 | 2 | dataset.foo: unknown key
train ++training.batch.cuont=1 | 2 | training.batch.cuont: unknown key | did you mean 'count'
train +foo=1 | 2 | unknown key 'foo'
train dataset=null | 2 | dataset=null: the setting dataset=... needs the name of one of its options | blobs
train model=3 | 2 | model=3: the setting model=... needs the name of one of its options | mlp
train dataset= | 2 | unknown dataset ''
train dataset=blobs,digits | 2 | dataset=blobs,digits: give one name | -m
train "training.lr='1,000'" | 2 | training.lr: expected a number, without thousands separators
train data_dir= | 2 | data_dir= has no value
certify run= | 2 | give the folder of one finished agt train run, or run=latest
certify run=null | 2 | give the folder of one finished agt train run
certify run=[@box] | 2 | give the folder of one finished agt train run
certify run=@box inputs= | 2 | inputs= has no value
predict release=nowhere inputs=@ok.csv | 2 | release=nowhere: this folder does not exist
verify | 2 | `agt verify` is incomplete: add PATH
ledger | 2 | `agt ledger` is incomplete: add init or show
ledger open people | 2 | unknown word 'open' after `agt ledger`
runs limit=-1 | 2 | limit
train training.lr=0 | 2 | training.lr: | greater than 0
train training.lr=-1 | 2 | training.lr: | greater than 0
train training.lr=nan | 2 | training.lr: | finite
train training.lr=inf | 2 | training.lr: | finite
train training.lr=1e308 | 2 | training.lr: | 1000000
train training.lr=null | 2 | training.lr: expected a number
train training.lr=[1] | 2 | training.lr: expected a number, got [1]
train training.lr=true | 2 | training.lr: expected a number, got true
train training.lr= | 2 | training.lr: expected a number
train training.epochs=0 | 2 | training.epochs: | 1
train training.epochs=-1 | 2 | training.epochs:
train training.epochs=1e9 | 2 | training.epochs: | 100000
train training.epochs=1.5 | 2 | training.epochs: expected a whole number, got 1.5
train training.clip=0 | 2 | training.clip:
train training.dtype=float16 | 2 | training.dtype: | did you mean 'float64'
train training.loss=hinge | 2 | training.loss: | cross_entropy
train training.seed=-1 | 2 | training.seed:
train training.momentum=1 | 2 | training.momentum:
train training.nesterov=true | 2 | nesterov=true needs training.momentum
train training.dampening=0.5 | 2 | dampening above 0 needs training.momentum
train training.decay_mode=coupled training.momentum=.9 | 2 | decay_mode=coupled | decoupled
train training.weight_decay=2 | 2 | lr * weight_decay = 4 exceeds 1
train training.batch=3 | 2 | training.batch: expected a mapping of settings (key: value), got 3
train training.batch.count=0 | 2 | training.batch.count:
train training.batch.normalizer=0 | 2 | training.batch.normalizer:
train training.chosen_on=yes | 2 | training.chosen_on: | public
train model.hidden=3 | 2 | model.hidden: expected a list, got 3: give model.hidden=[3]
train model.hidden=[0] | 2 | model.hidden.0:
train model.hidden=[1000000000] | 2 | model.hidden.0: | 16777216
train model.activation=gleu | 2 | did you mean 'gelu'
train model=custom model._target_=no.such | 2 | model._target_=no.such | There is no module no
train kgrid.max=-1 | 2 | kgrid.max:
train kgrid.max=1000000 | 2 | kgrid: max=1000000 | 65537
train kgrid.max=1.5 | 2 | kgrid.max: expected a whole number
train kgrid.max=many | 2 | kgrid.max: expected a whole number, without thousands separators, got 'many'
train kgrid.max=null | 2 | kgrid: give exactly one of kgrid.max
train kgrid.values=[1,2] | 2 | kgrid: give exactly one of kgrid.max
train kgrid=sparse kgrid.values=[] | 2 | kgrid: values is empty
train kgrid=sparse kgrid.values=[2,1,2] | 2 | kgrid: values repeats 2
train kgrid=sparse kgrid.values=[1.5] | 2 | kgrid.values.0: expected a whole number
train kgrid=sparse kgrid.values=[a] | 2 | kgrid.values.0: expected a whole number
train kgrid=sparse kgrid.values=[-1] | 2 | kgrid.values.0:
train kgrid=sparse kgrid.values=5 | 2 | kgrid.values: expected a list
train relation=foo | 2 | unknown relation 'foo' | add_remove
train relation.unit_rows=0 | 2 | relation.unit_rows:
train compute.device=tpu | 2 | compute.device: | cpu
train compute.kernel=gpu | 2 | compute.kernel=gpu does not run on compute.device=cpu
train compute.threads=0 | 2 | compute.threads:
train compute.memory_mb=1 | 2 | compute.memory_mb:
train ensemble.members=0 | 2 | ensemble.members:
train ensemble=3 | 2 | ensemble: expected a mapping of settings
train model=linear certificate=votes dataset.declared_size=9 ensemble=null | 2 | ensemble: expected a mapping
train noise.epsilon=0 | 2 | noise.epsilon:
train noise.epsilon=1 noise.delta=1 | 2 | noise.delta:
train noise.seed=3 | 2 | noise.epsilon is null
train noise.epsilon=1 relation=remove | 2 | noise.epsilon: relation=remove
train certificate=boxx | 2 | unknown certificate 'boxx' | did you mean 'box'
train certificate=stability | 2 | model.hidden=[128] | model=linear
train certificate=erm model=linear | 2 | training.
train dataset.n_train=1 | 2 | dataset.n_train:
train dataset.std=0 | 2 | dataset.std:
train dataset.test_fraction=0 | 2 | dataset.test_fraction:
train dataset=digits dataset.classes=[3] | 2 | dataset.classes:
train dataset=digits dataset.classes=[3,3] | 2 | 'classes' lists
train dataset=digits dataset.classes=[3,11] | 2 | dataset.classes.1:
train dataset=digits dataset.declared_size=0 | 2 | dataset.declared_size:
{HEAD}  training.momentum=.9 | 2 | training.momentum=0.9
{HEAD}  compute.kernel=gpu | 2 | compute.kernel=gpu
{HEAD}  certificate.features.map=relu | 2 | certificate.features: | count
{HEAD}  certificate.features.count=7 | 2 | certificate.features: | count
{HEAD}  certificate.features.whiten=1 | 2 | certificate.features: whitening
{HEAD}  certificate/features=landmarks | 2 | certificate.features: map=landmarks
train certificate/features=relu | 2 | certificate/features: this setting needs a linear model
{HEAD}  relation=paper_privacy | 2 | relation
{HEAD}  noise.epsilon=1 | 2 | noise.epsilon: certificate=stability
{HEAD}  certificate=erm training.batch.count=2 training.weight_decay=.1 | 2 | training.batch.count=2
{TABLE} | 2 | dataset.path= is empty
{TABLE}null | 2 | dataset.path: expected a path
{TABLE}[@ok.csv] | 2 | dataset.path: expected a path
{TABLE}@ok.csv dataset.id=y | 2 | dataset.label and id both name column y
{TABLE}@ok.csv dataset.label=a | 2 | column a
{TABLE}@ok.csv +dataset.categorical='{{y: [yes]}}' | 2 | column y
{TABLE}@ok.csv dataset.classes=[yes] | 2 | dataset.classes:
{TABLE}@ok.csv dataset.classes=[yes,no,no] | 2 | classes lists 'no' twice
{TABLE}@ok.csv dataset.test=@ok.csv | 2 | dataset: dataset.test names the file of the training records
{TABLE}@ok.csv dataset.test_fraction=1 | 2 | dataset.test_fraction:
{TABLE}@ok.csv dataset.declared_size=-3 | 2 | dataset.declared_size:
{TABLE}@ok.csv dataset.numeric.a=[3,-3] | 2 | numeric.a
{TABLE}@ok.csv dataset.numeric.a=[nan,1] | 2 | numeric.a
{TABLE}@ok.csv dataset.numeric.a=[-1e308,1e308] | 2 | numeric.a | too wide to compute with
{VECTORS}@vectors.npz dataset.scale=0 | 2 | dataset.scale:
certify run=@nowhere | 2 | nowhere: this folder does not exist
certify run=lastest | 2 | run=lastest: this folder does not exist | did you mean run=latest?
certify run=@ok.csv | 2 | ok.csv: this is a file, but the folder of a finished run is needed
certify run=@folder | 2 | this is not the folder of a run (it has no file status.json)
certify run=latest | 2 | there is no finished training run in outputs/train
plan run=latest | 2 | there is no finished training run in outputs/train
predict run=latest mechanism.eps=1 | 2 | there is no finished training run in outputs/train. Start agt train
certify run=@failed | 2 | its state in status.json is 'failed' (ConfigError
certify run=@killed | 2 | its state in status.json is 'running'
certify run=@certified | 2 | according to status.json, this is a run of agt certify
predict run=@certified mechanism.eps=1 | 2 | according to status.json, this is a run of agt certify
unlearn | 2 | run
unlearn run=nowhere ids=@ok.csv | 2 | nowhere: this folder does not exist
unlearn run=@box method=forget | 2 | method=forget: unknown value
unlearn run=@box unknown=skip ids=@ok.csv | 2 | unknown=skip: unknown value (known: ignore, refuse)
unlearn run=@box by=name | 2 | by=name: unknown value (known: id, unit)
unlearn run=@box ids=[C99] | 2 | ids=[...]: | one id per line | printf | ids=-
unlearn run=@box fresh=maybe | 2 | new_seeds=maybe: give true or false
unlearn run=@edited_manifest ids=@list.yaml | 2 | manifest.json
plan run=@edited_manifest | 2 | manifest.json
certify run=@edited_metrics | 2 | metrics.json
predict run=@edited_config mechanism.eps=1 | 2 | config.yaml
certify run=@no_bounds | 2 | k=00002.safetensors
certify run=@no_manifest | 2 | manifest.json
certify run=@box digest=abc | 2 | digest=abc: a digest is sha256:
certify run=@box digest=sha256:0000000000000000000000000000000000000000000000000000000000000000 | 2 | another run
certify run=@box map_resolution=-1 | 2 | map_resolution:
certify run=@box map_resolution=1e9 | 2 | map_resolution: | 1000
certify run=@box compute.kernel=gpu | 2 | compute.kernel=gpu
certify run=@box +mechanism.eps=1 | 2 | unknown key 'mechanism'
plan run=@box eps=[] | 2 | eps:
plan run=@box eps=1 | 2 | eps: expected a list, got 1: give eps=[1]
plan run=@box eps=0 | 2 | eps: expected a list, got 0, and each entry must be greater than 0
plan run=@box eps=[0] | 2 | eps.0:
plan run=@box eps=[-1] | 2 | eps.0:
plan run=@box eps=[nan] | 2 | eps.0: | finite
plan run=@box eps=[abc] | 2 | eps.0: expected a number, without thousands separators, got 'abc'
plan run=@box eps=[1,1] | 2 | eps: the value 1.0 is listed twice
plan run=@box delta=1 | 2 | delta: | less than 1
plan run=@box delta=-1 | 2 | delta:
plan run=@box delta=null | 2 | delta: expected a number
plan run=@box queries=[0] | 2 | queries.0:
plan run=@box queries=[1.5] | 2 | queries.0: expected a whole number
plan run=@box mechanisms=[] | 2 | mechanisms:
plan run=@box mechanisms=[randomised_response] | 2 | did you mean 'randomized_response'
plan run=@box mechanisms=randomized_response | 2 | mechanisms: expected a list
plan run=@box counting=people | 2 | counting: | distance
predict run=@box | 2 | the release has no privacy budget: give either total.eps
predict run=@box mechanism.eps=0 | 2 | mechanism.eps:
predict run=@box mechanism.eps=-1 | 2 | mechanism.eps:
predict run=@box mechanism.eps=nan | 2 | mechanism.eps: | finite
predict run=@box mechanism.eps=inf | 2 | mechanism.eps: | finite
predict run=@box mechanism.eps=1e308 | 2 | mechanism.eps: | 100
predict run=@box mechanism.eps=abc | 2 | mechanism.eps: expected a number
predict run=@box mechanism.delta=1e-5 | 2 | mechanism.eps: this setting is required
predict run=@box mechanism.eps=1 total.eps=1 | 2 | total.eps and mechanism.eps both state a budget
predict run=@box total.delta=1e-5 | 2 | no privacy budget
predict run=@box total.eps=1 total.delta=1 | 2 | total.delta: | less than 1
predict run=@box total=5 | 2 | total: expected a mapping of settings
predict run=@box total.eps=[1] | 2 | total.eps: expected a number
predict run=@box mechanism.eps=1 total.queries=0 | 2 | total.queries:
predict run=@box mechanism=gausian_margin | 2 | did you mean 'gaussian_margin'
predict run=@box mechanism=null | 2 | mechanism=null: the setting mechanism=... needs the name of one of its options
predict run=@box mechanism=gaussian_margin total.eps=1 | 2 | total.delta
predict run=@box mechanism=smooth_laplace mechanism.eps=1 mechanism.delta=.7 | 2 | mechanism.delta:
predict run=@box mechanism.eps=1 seed=-1 | 2 | seed:
predict run=@box mechanism.eps=1 seed=1.5 | 2 | seed: expected a whole number
predict run=@box mechanism.eps=1 accounting=lenient | 2 | accounting: | rigorous
predict run=@head mechanism=certified_quantile mechanism.eps=1 mechanism.fraction=2 | 2 | mechanism.fraction:
{WEIGHTS}  total.eps=1 | 2 | total.delta
{WEIGHTS}  mechanism.mu=0 | 2 | mechanism.mu:
{WEIGHTS}  total.eps=1 total.delta=1e-5 counting=index | 2 | counting=index has no effect, because mechanism=release_weights
{WEIGHTS}  total.eps=1 total.delta=1e-5 accounting=paper | 2 | unproved=allow has no effect, because mechanism=release_weights
predict run=@head mechanism=objective_perturbation total.eps=1 | 2 | total.delta
data | 2 | is incomplete: add prepare
data prepar imdb | 2 | unknown word 'prepar' | did you mean 'prepare'
data prepare | 2 | is incomplete | imdb
data prepare idmb | 2 | did you mean 'imdb'
data prepare imdb prepare.poling=max | 2 | did you mean 'pooling'
data prepare imdb prepare.pooling=sum | 2 | prepare.pooling: | mean
data prepare imdb prepare.limit=0 | 2 | prepare.limit:
data prepare imdb prepare.reviews= | 2 | prepare.reviews= is empty
data prepare imdb prepare.out= | 2 | prepare.out= is empty
data prepare amex prepare.test_fraction=2 | 2 | prepare.test_fraction:
data inspect | 2 | is incomplete: add FILE
reproduce | 2 | is incomplete | blobs
reproduce blobz | 2 | did you mean 'blobs'
reproduce blobs profile=fast | 2 | profile: | smoke
reproduce blobs only=[] | 2 | only:
reproduce blobs only=[nothing] | 2 | has no artifact 'nothing' | 001_fig2
reproduce blobs only=001_fig2 | 2 | only: expected a list
reproduce blobs overrides=[foo] | 2 | overrides: 'foo' is not a setting
reproduce blobs "overrides=['relation=remove']" | 2 | overrides: relation=remove
reproduce blobs runs_dir= | 2 | runs_dir= has no value
reproduce blobs data=mine | 2 | data: | stand_in
reproduce imdb profile=smoke data=original | 2 | data=original: profile=smoke
measure dataset=blobs total.eps=1 | 2 | agt measure can only measure a table
measure dataset=adult_census total.eps=1 name=../x | 2 | letters, digits
measure dataset=adult_census | 2 | total.eps is missing, but measuring spends privacy budget
measure dataset=adult_census total.eps=1 total.delta=0 | 2 | delta
measure dataset=adult_census total.eps=1 | 2 | nothing needs to be measured
measure dataset=adult_census dataset.label_free=true total.eps=1 relation=flip | 2 | under relation=add_remove or relation=substitute
tune dataset=blobs tune.folds=0 | 2 | tune
tune dataset=blobs tune.objective=best | 2 | tune
audit | 2 | `agt audit` is incomplete | selftest
audit selftst | 2 | unknown word 'selftst' | did you mean 'selftest'
audit selftest confidence=0.3 | 2 | confidence=0.3: | at least 0.5 and below 1
audit selftest confidence=1 | 2 | confidence=1:
audit selftest confidence=95% | 2 | confidence=95%:
audit selftest confidence=true | 2 | confidence=True:
audit selftest seed=-1 | 2 | seed=-1: give an integer
audit selftest seed=1.5 | 2 | seed=1.5:
audit selftest audit.trials=3 | 2 | audit.trials
audit selftest +audit.trials=3 | 2 | audit.trials: unknown key
audit selftest audit._target_=no.such | 2 | audit._target_: cannot import 'no.such'
audit selftest audit._target_=agt.settings.KGridConfig +audit.max=3 | 2 | is not a kind of audit
audit selftest run=@nowhere | 2 | nowhere: this folder does not exist
audit summary run=@nowhere | 2 | agt audit summary was removed | type agt runs command=audit
train certificate=tube | 2 | certificate=tube was removed | certificate=stability model=linear
train model=smooth | 2 | certificate=tube was removed | certificate=stability model=linear
train training=imdb_tube | 2 | certificate=tube was removed
train experiment=imdb_tube | 2 | certificate=tube was removed
train dataset=blob | 2 | unknown dataset 'blob' | did you mean 'blobs' | digits
train model=mpl | 2 | unknown model 'mpl' | did you mean 'mlp'
train relation=add | 2 | unknown relation 'add'
train experiment=digit | 2 | unknown experiment 'digit' | did you mean 'digits'
train training=blob | 2 | there are no training settings named 'blob' | did you mean 'blobs'
train trainin=blobs | 2 | 'trainin' | did you mean 'training'
train dataset | 2 | 'dataset' is not a setting | KEY=VALUE
train +modle=1 | 2 | unknown key 'modle' | did you mean 'model'
train +training.momentun=.9 | 2 | training.momentun: unknown key | did you mean 'momentum'
train training.lr=fast | 2 | training.lr: | 'fast'
train training.clip=null | 2 | training.clip:
train training.weight_decay=.6 | 2 | lr * weight_decay = 1.2 exceeds 1
train kgrid=sparse 'kgrid.values=[1,1]' | 2 | kgrid: values repeats 1
train kgrid=sparse 'kgrid.values=[1,-1]' | 2 | kgrid.values | at least 0
train kgrid.max=1000000000000 | 2 | kgrid: max=1000000000000 | at most 65537 values
{TABLE}no.csv relation.unit_rows=17179869184 | 2 | relation.unit_rows: | 1073741824
{TABLE}@ok.csv relation.unit_rows=1073741824 | 2 | unit_rows | 214748364800 rows may change
{TABLE}@ok.csv kgrid=sparse 'kgrid.values=[0,1073741824]' relation.unit_rows=2 | 2 | kgrid | 2147483648 rows may change
{TABLE}no.csv training.batch.n_max=2147483648 | 2 | training.batch.n_max:
{TABLE}no.csv dataset.declared_size=2000000000 | 2 | dataset.declared_size:
train training.lr=1e300 | 2 | training.lr: | at most 1000000
train training.clip=1e-300 | 2 | training.clip: | at least 1e-09
train compute.device=gpu | 2 | compute.device | did you mean 'cpu'
train compute.kernel=fast | 2 | compute.kernel | reference
train model._target_=agt.models.heads.Heads | 2 | model._target_: cannot import
train model=custom | 2 | model._target_
train model=custom model._target_=math.pi | 2 | is not a class of networks or a function that returns one
certify run=nowhere | 2 | run=nowhere: this folder does not exist
train training.clip=-1 | 2 | training.clip:
train training.clip=nan | 2 | training.clip: | finite
train training.clip=inf | 2 | training.clip: | finite
train training.clip=1e300 | 2 | training.clip:
train training.clip=true | 2 | training.clip: expected a number, got true
train training.epochs=1000000000000 | 2 | training.epochs:
train training.epochs=true | 2 | training.epochs: expected a number, got true
train training.seed=true | 2 | training.seed: expected a number, got true
train training.decay=-.1 | 2 | training.decay:
train training.lr_min=1e300 | 2 | training.lr_min:
train training.momentum=-.1 | 2 | training.momentum:
train training.momentum=.5 training.dampening=1.5 | 2 | training.dampening:
train training.nesterov=true training.momentum=.5 training.dampening=.1 | 2 | nesterov=true needs training.momentum
train training.weight_decay=-1 | 2 | training.weight_decay:
train training.lr=.1 training.lr_min=.6 training.weight_decay=2 | 2 | exceeds 1
train training.batch.n_max=0 | 2 | training.batch.n_max:
train training.batch.count=1000000000000 | 2 | training.batch.count:
train training.batch.count=true | 2 | training.batch.count: expected a number
train training.batch.normalizer=1e308 | 2 | training.batch.normalizer:
train training.batch.normalizer=1e-300 | 2 | training.batch.normalizer:
train ++training.batch.normaliser=5 | 2 | did you mean 'normalizer'
train training.loss=cros_entropy | 2 | did you mean 'cross_entropy'
train training.product=rumpf | 2 | did you mean 'rump'
train training.dtype=bfloat16 | 2 | training.dtype:
train kgrid.max=65537 | 2 | at most 65537 values
train kgrid=sparse kgrid.values=[1,1073741825] | 2 | kgrid.values
train relation=add_remov | 2 | did you mean 'add_remove'
train compute.fragment=0 | 2 | compute.fragment: must be at least 1, got 0
train dataset=digits dataset.test_fraction=1 | 2 | dataset.test_fraction: | less than 1
train dataset=digits ++dataset.clases=[3,8] | 2 | dataset.clases: unknown key; did you mean 'classes'
{SCANS}dataset.held_out=[2] | 2 | held_out needs finetune_classes
{SCANS}dataset.keep='{{3: 0.5}}' dataset.finetune_classes=[0,1] | 2 | 'keep' lists class 3
{SCANS}dataset.keep='{{3: 1.5}}' | 2 | dataset.keep.3: | at most 1
{SCANS}dataset.finetune_classes=[0,1] dataset.positive=[1,1] | 2 | positive lists class 1 twice
{SCANS}dataset.finetune_classes=[1,1] | 2 | finetune_classes lists class 1 twice
{SCANS}dataset.finetune_classes=[0,1] dataset.held_out=[1,1] | 2 | held_out lists class 1 twice
{SCANS}dataset.size=32 | 2 | unknown value '32'
{SCANS}dataset.scale=0 | 2 | dataset.scale: | greater than 0
{SCANS}++dataset.positve=[1] | 2 | did you mean 'positive'
{LISTS} | 2 | no column is listed under 'numeric' or 'categorical'
{LISTS}+dataset.numeric='{{y: [0, 1]}}' | 2 | column y cannot be a feature
{TABLE}t.csv dataset.numeric.a=[1,1] | 2 | numeric.a: the limits of a range, or the edges of bins, must increase
{TABLE}t.csv dataset.numeric.a=[0,5,5,9] | 2 | 5 is followed by 5
{TABLE}t.csv dataset.numeric.a=[5] | 2 | numeric
{TABLE}t.csv dataset.numeric.a=[0,inf] | 2 | dataset.numeric.a.1: | finite
{TABLE}t.csv +dataset.categorical='{{a: [x]}}' | 2 | column a is listed under both
{TABLE}t.csv +dataset.categorical='{{b: [x, x]}}' | 2 | categorical.b lists a value twice
{TABLE}t.csv +dataset.categorical='{{b: []}}' | 2 | dataset.categorical.b: | at least 1
{TABLE}t.csv +dataset.categorical='{{b: [x, true]}}' | 2 | dataset.categorical.b.1: True is not text
{TABLE}t.csv +dataset.categorical='{{b: [x]}}' dataset.missing_values=[x] | 2 | categorical.b lists 'x'
{TABLE}t.csv dataset.unit=a | 2 | column a cannot be a feature
{TABLE}t.csv dataset.unit=y | 2 | dataset.label and unit both name column y
{TABLE}t.csv dataset.public=y | 2 | dataset.label and public both name column y
{TABLE}t.csv dataset.split=y | 2 | dataset.label and split both name column y
{TABLE}t.csv dataset.split=s dataset.test=u.csv | 2 | either dataset.split
{TABLE}t.csv dataset.missing=drop | 2 | unknown value 'drop'
{TABLE}t.csv dataset.bins=-1 | 2 | bins
{TABLE}t.csv dataset.bins=10000 | 2 | bins
{TABLE}t.csv dataset.crosses=-1 | 2 | crosses
{TABLE}t.csv dataset.crosses=8 | 2 | 'crosses' (features made from two columns)
{TABLE}t.csv dataset.from_data=[clases] | 2 | 'from_data' lists 'clases' | did you mean 'classes'
{TABLE}t.csv dataset.subgroups=[b,b] | 2 | 'subgroups' lists the same column twice
{TABLE}t.csv dataset.classes='[1,"1"]' | 2 | classes lists '1' twice
{TABLE}t.csv dataset.classes='[no," no"]' | 2 | classes lists 'no' twice, perhaps with different spaces
{TABLE}t.csv dataset.classes='["",no]' | 2 | 'classes' contains an empty name
{TABLE}t.csv dataset.classes='[" ",no]' | 2 | 'classes' contains an empty name
{TABLE}t.csv dataset.classes=[false,true] | 2 | dataset.classes.0: False is not text: | in quotes
predict run=@box mechanism.eps=1 counting=steps | 2 | counting: unknown value 'steps'
predict run=@box total.eps=0 | 2 | total.eps: must be greater than 0
predict run=@box total.eps=-1 | 2 | total.eps: must be greater than 0
predict run=@box total.eps=nan | 2 | total.eps: | finite
predict run=@box total.eps=inf | 2 | total.eps: | finite
predict run=@box total.eps=much | 2 | total.eps: expected a number
predict run=@box mechanism=smooth_laplace mechanism.eps=1 | 2 | mechanism.delta: this setting is required
predict run=@box mechanism=smooth_laplace mechanism.eps=1 mechanism.delta=-1e-5 | 2 | mechanism.delta: | greater than 0
predict run=@box mechanism=smooth_laplace mechanism.eps=60 mechanism.delta=1e-5 | 2 | only proved up to eps
predict run=@box mechanism=smooth_laplace total.eps=1 | 2 | mechanism=smooth_laplace | give total.delta
predict run=@box mechanism=gaussian_margin mechanism.mu=nan | 2 | mechanism.mu: | finite
predict run=@box mechanism=gaussian_margin mechanism.mu=1 total.eps=1 | 2 | total.eps and mechanism.mu both
predict run=@box mechanism._target_=os.path.join | 2 | mechanism._target_: 'os.path.join' is not a release mechanism
predict run=@box mechanism._target_=nowhere.X | 2 | mechanism._target_: cannot import
{WEIGHTS} | 2 | no privacy budget | or mechanism.mu
data prepare prepare.batch=1 | 2 | add amex or imdb
data data_dir=x prepare prepare.clamp=3 amex | 2 | prepare.clamp
data prepare amex prepare.missing=low | 2 | prepare.missing: | 'low'
data inspect . | 2 | '.' is a folder | the table's file
data inspect digits.csv | 2 | one of agt's own | name=my_digits
data inspect t.csv most_values=0 | 2 | most_values:
reproduce blobs "overrides=['++noise.epsilon=1']" | 2 | cannot be changed
train noise.epsilon=1 noise.delta=0 | 2 | noise.delta:
train noise.epsilon=1 +noise.sigma=1 | 2 | sigma
train noise.epsilon=1 relation=paper_privacy | 2 | divides by the actual size of the batch
train noise.epsilon=1 ensemble.members=2 | 2 | answers by vote
{HEAD}  certificate.features.map=relux | 2 | did you mean 'relu'
{HEAD}  certificate.features.public=test | 2 | whitening needs public rows
{HEAD}  ++certificate.features.bandwith=1 | 2 | bandwidth
{HEAD}  certificate.name=stabilty | 2 | did you mean 'stability'
{HEAD}  +certificate.averge=3 | 2 | did you mean 'average'
{REMOVAL}training.batch.count=2 | 2 | certificate=removal uses all records at once
{REMOVAL}certificate.masking=none certificate.sigma=0 | 2 | masking=none: with loss=logistic, removals
{REMOVAL}certificate.masking=inside | 2 | certificate.masking: unknown value 'inside'
{SQUARES}certificate.sigma=1 | 2 | masking=none means no noise
{SQUARES}certificate.sigma=0 certificate.seed=1 | 2 | masking=none means no noise
{REMOVAL}certificate.sigma=0 | 2 | masking=output hides the error
{REMOVAL}certificate.delta=0 | 2 | delta
{REMOVAL}certificate.eps=-1 | 2 | eps
{REMOVAL}certificate.loss=hinge | 2 | loss: unknown value 'hinge'
{REMOVAL}certificate.bound=best | 2 | bound: unknown value 'best'
{REMOVAL}certificate.tolerance=0 | 2 | tolerance
{LEARNER}sklearn.tree.NoTree | 2 | cannot import 'sklearn.tree.NoTree'
{LEARNER}sklearn.tree.DecisionTreeClassifier +certificate.learner.depth=2 | 2 | does not accept these settings
train certificate=votes ensemble.members=5 +certificate.learner='{{max_depth: 2}}' | 2 | in learner._target_
certify run=. | 2 | this is not the folder of a run | no file status.json
certify rnu=x | 2 | 'rnu' | did you mean 'run'
"""
"""What ``configure`` refuses, before any data is read."""

WHOLE = f"""
train --dataset=digits | 2 | settings are written without dashes | type dataset=digits
train dataset = digits | 2 | without blanks around the equals sign | dataset=digits
train dataset:digits | 2 | did you mean 'dataset=digits'
train k=10 | 2 | unknown key 'k' | did you mean 'kgrid.max'
{TABLE}@ok.csv size=2000 | 2 | unknown key 'size'; did you mean 'dataset.declared_size'?
{TABLE}@ok.csv units=person | 2 | unknown key 'units'; did you mean 'dataset.unit'?
train clip=1 | 2 | unknown key 'clip'; did you mean 'training.clip_elementwise'?
data inspect @ok.csv unit_rows=5 | 2 | unknown key 'unit_rows' | id=COLUMN unit_rows=NUMBER
predict run=@box unit=person | 2 | unknown key 'unit'; agt predict --help
train training.caution=0,5 | 2 | decimal point | training.caution=0.5
train model.hidden=64,32 | 2 | is a list | type model.hidden=[64,32]
train kgrid.values=1,5 | 2 | type kgrid.values=[1,5]
plan run=latest eps=0,5 | 2 | eps=[0,5] | for the number 0.5, eps=[0.5]
train training.clip_derivative=1 | 2 | certificate=box | type training.clip_elementwise=1
{HEAD} certificate=stability training.clip_elementwise=1 | 2 | certificate=stability | type training.clip_derivative=1
train dataset=@ok.csv | 2 | the file of a table | agt data inspect
train dataset=conf/dataset/digit.yaml | 2 | needs a name, and not a path | did you mean 'digits'
data @ok.csv | 2 | agt data inspect
certify latest | 2 | did you mean 'run=latest'
version | 2 | agt --version
{BLOBS}certificate=box ensemble.members=5 relation.unit_rows=2 | 2 | relation.unit_rows=2: | dataset.unit
trian | 2 | unknown command 'trian' | did you mean 'train'
certfy run=x | 2 | did you mean 'certify'
runs compare=[box,nothing] | 2 | compare: 'box' matches no run here
runs -m limit=1,2 | 2 | -m: agt runs does not support sweeps
train certificate.length=4 | 2 | certificate.length=4: certificate=tube was removed
{HEAD}certificate.features.map=fourier | 2 | certificate.features.map=fourier: | features=landmarks
{HEAD}certificate/features=crosses | 2 | certificate/features=crosses: | dataset.crosses=1024
{HEAD}certificate.features.weight=2 | 2 | certificate.features.weight=2: | dataset.crosses=1024
{BLOBS}ensemble.members=2 ensemble.slices=2 | 2 | ensemble.slices=2: this setting was removed, because agt unlearn method=sisa now retrains each affected member
{WEIGHTS}mechanism.shrink=true | 2 | mechanism.shrink=true: this setting, which made released weights smaller, was removed
tune dataset=blobs tune.private=true total.eps=1 | 2 | tune.private=true: tuning on private records was removed | tune.public
runs where=accuracy>0.5 | 2 | where=accuracy>0.5: | pandas | agt runs limit=null --json
train --info config | 2 | --info: | agt COMMAND --cfg all
runs sort=test_accuracy | 2 | sort=test_accuracy: | pandas | agt runs limit=null --json
unlearn run=@box ids=@ok.csv key=owner.pem | 2 | key=owner.pem: | ssh-keygen -Y sign
predict run=@box mechanism=release_weights mechanism.weights=@box | 2 | mechanism.weights= | agt predict release=FOLDER
verify @box public=owner.pub | 2 | public=owner.pub: | ssh-keygen -Y sign
dataset=digits train | 2 | the name of the command must come first: type agt train dataset=digits
-m train training.seed=1,2 | 2 | the name of the command must come first: type agt train -m training.seed=1,2
train blobs | 2 | 'blobs' is not a setting | did you mean 'dataset=blobs'
train training.lr | 2 | did you mean 'training.lr=VALUE'
train @ok.csv | 2 | agt data inspect
certify @box | 2 | did you mean 'run=
certify run=@box @q.csv | 2 | did you mean 'inputs=
train =3 | 2 | '=3' is not a setting
train --jsn | 2 | did you mean '--json'
train --cfg | 2 | --cfg
train --config-dir nowhere | 2 | nowhere
train trainin.lr=1 | 2 | did you mean 'training.lr'
train '~training.lr' | 2 | training.lr: this setting is required
ledger init people run=latest unit=one person | 2 | 'person' is not a setting | did you mean unit='one person'
train training.lr=1,000 | 2 | training.lr=1,000: write numbers without commas, training.lr=1000
train 'training.lr=${{nothing}}' | 2 | training.lr: Interpolation key 'nothing'
train 'training.lr=${{oc.env:NOPE}}' | 2 | training.lr: | NOPE
train 'training.lr=${{training.lr}}' | 2 | training.lr: Recursive
train 'training.lr=${{' | 2 | 'training.lr=${{' cannot be read | close all brackets
train "training.lr='1" | 2 | training.lr='1' cannot be read
train 'model.hidden=[4' | 2 | write a list as model.hidden=[4]
train 'model.hidden=[16;8]' | 2 | write a list as model.hidden=[16,8]
train 'model.hidden=[4,]' | 2 | write a list as model.hidden=[4]
train '+dataset.from_data=[my age, b' | 2 | close all brackets
train kgrid.values=0..10 | 2 | kgrid.values: expected a list, got '0..10'
train DATASET=blobs | 2 | unknown key 'DATASET'; did you mean 'dataset'
train total.eps=1 | 2 | agt train --help lists the settings
train +training.lr=1 | 2 | this setting exists, so type it without a plus sign: training.lr=1
tune dataset=digits tune.public=nowhere.csv | 4 | nowhere.csv | change tune.public
start file=my.csv | 2 | agt start takes FILE without a key: type agt start my.csv
start ~/nowhere.csv | 4 | nowhere.csv does not exist
TRAIN | 2 | did you mean 'train'
train dataset=table dataset.numeric='{{a: [0, 1]}}' | 2 | with a plus sign: type '+dataset.numeric
reproduce blobs overrides=[relation=remove] | 2 | put text with special characters in quotes
train output_dir= | 2 | output_dir=: the name of a folder is missing
train output_dir=null | 2 | output_dir=null: the name of a folder is missing
train hydra.run.dir= | 2 | hydra.run.dir=: the name of a folder is missing
train output_dir=@ok.csv | 2 | ok.csv is not a folder | output_dir=
train -m training.seed=1,2 hydra.sweep.dir=@ok.csv | 2 | ok.csv is not a folder | hydra.sweep.dir=
train -m training.seed=1,2 output_dir=@ok.csv | 2 | ok.csv is not a folder | output_dir=
train drop=[a, b] | 2 | 'drop=[a, b]'
start my.csv drop=age, sex | 2 | drop=[age,sex]
train dataset=digits, blobs | 2 | dataset=digits,blobs and -m
unlearn run=latest ids=[p17, p18] | 2 | ids=...: | ids=FILE
certify --run=latest | 2 | without dashes: type run=latest
train --json=true | 2 | type --json
'train dataset=digits' | 2 | type agt train dataset=digits
train 'dataset=digits model=linear' | 2 | type dataset=digits model=linear
start 'my.csv label=y' | 2 | type my.csv label=y
train model=custom model._target_= | 2 | name of the function that makes the network is missing | model._target_=MODULE.FUNCTION
completion | 2 | bash
completion bsh | 2 | did you mean 'bash'
inspect my.csv force=true | 2 | 'inspect' is not a command | agt data inspect my.csv force=true
help trian | 2 | did you mean 'train'
verify nowhere | 2 | nowhere
verify @ok.csv | 2 | ok.csv
doctor now | 2 | 'now'
{HEAD}  certificate=erm training.clip=.5 training.weight_decay=.1 certificate.tolerance=1e-30 | 2 | certificate.tolerance
{HEAD}  training.clip=.5 training.lr=9 training.epochs=60 | 2 | training.lr: the learning rate 9 of step 0 is too large | give at most 5.
{HEAD}  certificate.average=61 training.clip=.5 training.epochs=60 | 2 | certificate.average=61 exceeds the number of training steps, 60
train dataset=imdb | 4 | data/imdb_gpt2 does not exist: create this file with agt data prepare imdb
train dataset=amex | 4 | data/amex does not exist: create this file with agt data prepare amex
predict run=@box mechanism.eps=1 inputs=@no.csv | 4 | no.csv does not exist
predict run=@box mechanism.eps=1 inputs=@q_nan.csv | 2 | q_nan.csv | row 2 of the data (line 3 of the file)
predict run=@box total.eps=1 mechanism.classes=3 | 2 | mechanism.classes=3, but the model has 2
plan run=@box inputs=@q_half.csv | 2 | agt plan needs labels
ledger init x unit=y total.eps=1 relation=remove | 2 | only covers removals is not differential privacy
ledger init x unit=y total.eps=1 relation=both | 2 | unknown relation 'both'
ledger init x unit=y | 2 | total.eps is missing, but a ledger needs a budget
ledger init x unit=y total.delta=1e-5 | 2 | total.eps is missing, but a ledger needs a budget
ledger init x unit=y total.eps=inf | 2 | total.eps
ledger init x unit=y total.eps=true | 2 | total.eps
ledger init x total.eps=1 | 2 | unit is missing: say whose data the guarantee protects
ledger init x unit= total.eps=1 | 2 | unit= has no value
ledger init x unit=y total.eps=1 data=ee | 2 | data=ee: give data=DIGEST | data_digest in a run's env.json
ledger init x unit=y total.eps=1 run=nowhere | 2 | run=nowhere: this folder does not exist
ledger init none unit=y total.eps=1 | 2 | means that no ledger is used
ledger init x unit=y total.eps=1 head=stick/x.head | 2 | head=stick/x.head: the folder stick does not exist
ledger init x/ unit=y total.eps=1 | 2 | x
ledger init a?b unit=y total.eps=1 | 2 | a ledger's name may contain only letters
ledger show none | 2 | ledgers/none.ledger does not exist. To create a ledger, type agt ledger init
ledger show @ok.csv total.eps=2 | 2 | total=... only applies to agt ledger init
ledger verify @ok.csv run=@box | 2 | run=... only applies to agt ledger init and admit
ledger verify @ok.csv head=12:abc | 2 | at least the first 16 digits
ledger admit @ok.csv | 2 | agt ledger admit: say what to admit
ledger admit @ok.csv run=@box data=b | 2 | run=... and data=... cannot be given together
ledger admit @ok.csv lost=true | 2 | agt ledger admit: say what to admit
ledger show | 2 | is incomplete: add NAME
ledger show @ok.csv tabel=1 | 2 | unknown key 'tabel'
data inspect @ok.csv label=z | 2 | no column or key 'z', which label names
data inspect @ok.csv lable=x | 2 | unknown key 'lable' | did you mean 'label'
data inspect @even.csv | 2 | label is missing, so agt does not know which column to predict | No dataset configuration was written | give label=NAME (likely: 'a', 'b')
data inspect @plain.xlsx | 2 | unknown format '.xlsx'
start @ok.csv label=y id=none public=yes purpose=both | 2 | this terminal is not interactive | purpose=both eps=1
start @ok.csv label=y id=none public=yes eps=2 | 2 | this terminal is not interactive | purpose=both eps=2
start @ok.csv label=y public=yes purpose=both eps=2 | 2 | this terminal is not interactive | label=y id=none
start @ok.csv id=none public=yes purpose=both eps=2 | 2 | this terminal is not interactive | label=y id=none
start @ok.csv label=z id=none public=yes purpose=both eps=2 | 2 | no column or key 'z', which label names
{STARTED}id=id unit_rows=1 | 2 | unit_rows=1: one value of 'id' has 2 rows
{STARTED}id=none unit_rows=3 | 2 | unit_rows=3 limits the rows of one person
{STARTED}id=id unit_rows=2e9 | 2 | unit_rows: must be at most
{STARTED}id=id | 2 | this terminal is not interactive | unit_rows=NUMBER
{STARTED}answers=@list.yaml | 2 | one line for each answer
{STARTED}answers=none.yaml | 4 | answers=none.yaml: this file does not exist
train sweep=seeds | 2 | sweep=seeds: only a sweep can have a name, but this command is not a sweep
train -m sweep=a/b | 2 | sweep=a/b: the name of a sweep may contain only letters
train -m hydra/sweeper=basic | 2 | hydra/sweeper=basic: agt has its own sweeper and supports no other
train -m hydra.sweeper.devices=[0,1] | 2 | for example CUDA_VISIBLE_DEVICES=0,1 agt train
train -m hydra.sweep.subdir=x | 2 | the folder of each job of a sweep is now named after what the job computes
train -m training.seed=0,1 training=nowhere | 2 | training
train -m 'training.lr=interval(0,1)' | 2 | cannot list the values of this sweep
train -m hydra.launcher.n_jobs=1,2 hydra/launcher=joblib | 2 | give one value
train -m training.seed=0,1 hydra/launcher=joblib hydra.launcher.n_jobs=0 | 2 | n_jobs=0 would run no job: give the number
predict run=@box total.eps=1e-14 total.queries=1000 | 2 | leaves less than 1e-15 (the smallest budget that agt accepts) for each query: ask fewer queries
predict run=@box total.eps=1 total.queries=10000000000000 | 2 | queries = 10000000000000
ledger show peple | 2 | peple.ledger
ledger init people | 2 | total.eps
ledger init people run=@head total.eps=0 | 2 | total.eps
ledger init people run=@head total.eps=-1 | 2 | total.eps
ledger init people run=@head total.eps=nan | 2 | total.eps
ledger init people run=@head total.eps=abc | 2 | total.eps
ledger init people run=@head total.eps=1 total.delta=1 | 2 | total.delta
predict run=@head ledger=peple mechanism.eps=1 | 2 | peple.ledger
train resume=nowhere | 2 | resume=nowhere: this folder does not exist
train resume=@box | 2 | is finished
train resume= | 2 | resume
train resume=@folder | 2 | this is not the folder of a run (it has no file status.json)
train resume=@certified | 2 | agt train cannot resume a run of agt certify
tune resume=@failed | 2 | only `agt train` can resume a run
train training.batch.n_max=10 | 2 | n_max=10
{HEAD}  training.lr=1e5 | 2 | training.lr:
{HEAD}  certificate.average=1000 | 2 | certificate.average=1000
{HEAD}  training.loss=squared_error | 2 | training.loss=squared_error
{HEAD}  training.loss=cross_entropy | 2 | training.clip_derivative=
{TABLE}@no.csv | 4 | no.csv
{TABLE}@folder | 4 | folder
{TABLE}@empty.csv | 2 | empty.csv
{TABLE}@header.csv | 2 | header.csv | no rows
{TABLE}@loop.csv | 4 | loop.csv
{TABLE}@words.txt | 2 | words.txt
{TABLE}@latin.csv | 2 | latin.csv | UTF-8
{TABLE}@broken.parquet | 2 | broken.parquet
{TABLE}@nested.parquet | 2 | nested.parquet: column 'a' contains vectors | dataset.numeric.a
{TABLE}@one_class.csv | 2 | 'yes' | including those that do not occur
{TABLE}@missing.csv | 2 | column 'a' (dataset.numeric.a) has no value in row 5 of the data (line 6 of the file)
{TABLE}@inf.csv | 2 | column 'a' (dataset.numeric.a) has inf in row 5 of the data | infinite
{TABLE}@huge.csv | 2 | column 'a' (dataset.numeric.a) has inf in row 5 of the data | infinite
{TABLE}@thousands.csv | 2 | column 'a' (dataset.numeric.a) has '1,234.5' in row 5 of the data
{TABLE}@text.csv | 2 | column 'a' (dataset.numeric.a) has 'abc' in row 5 of the data
{TABLE}@no_label.csv | 2 | column 'y' (dataset.label) has no value in row 3 of the data (line 4
{TABLE}@two_rows.csv | 2 | there are no | dataset.test_fraction
{TABLE}@twice.csv dataset.id=id | 2 | twice.csv: column 'id' (dataset.id) contains 'p4' 2 times
{TABLE}@spaces.csv dataset.id=id | 2 | spaces.csv: column 'id' (dataset.id) | differ only in spaces
{TABLE}@ok.csv dataset.label=z | 2 | no column or key 'z' | dataset.label | known: a, b, id, y
{TABLE}@ok.csv dataset.label= | 2 | dataset.label
{TABLE}@ok.csv dataset.id=z | 2 | 'z' | dataset.id
{TABLE}@ok.csv dataset.classes=[yes,maybe] | 2 | ok.csv: row 1 of the data (line 2 of the file) has the label 'no'
{TABLE}@ok.csv dataset.split=b | 2 | column 'b' (dataset.split)
{TABLE}@ok.csv dataset.test=@no.csv | 4 | no.csv
{TABLE}@ok.csv dataset.test_fraction=.00001 | 2 | there are no test records | dataset.test_fraction
{TABLE}@ok.csv +dataset.numeric.c=[0,1] | 2 | no column or key 'c' | dataset.numeric.c
{TABLE}@ok.csv +dataset.categorical='{{b: [u, v]}}' | 2 | none of the 40 values of column 'b' | dataset.categorical.b
{TABLE}@no_such_ünïcode' file'.csv | 4 | ünïcode file.csv
train dataset=table | 2 | this setting is required
{VECTORS}@objects.npz | 2 | objects.npz: column 'x' cannot be read | pickled
{VECTORS}@broken.npz | 2 | broken.npz
{VECTORS}@short.npz | 2 | short.npz: the file has 40 records but 39 values of 'label'
{VECTORS}@vectors.npz dataset.x=z | 2 | no column or key 'z' | dataset.x
{VECTORS}@vectors.npz dataset.center=[1,2] | 2 | dataset.center has shape (2,)
{VECTORS}@nan.npz | 2 | column 'x' (dataset.x) has NaN or inf in row 4 of the data
train --config-dir @conf training=blobs dataset=broken | 2 | broken.yaml, line 2
train --config-dir @conf training=blobs dataset=loop | 2 | dataset.center: Recursive
train --config-dir @conf training=blobs dataset=gone | 2 | dataset._target_: cannot import 'agt.data.blobs.Blob'
train --config-dir @conf dataset=gone | 2 | there are no training settings named 'gone': give training=NAME
certify | 2 | run: this setting is required
unlearn run=@box ids=nobody.txt | 4 | ids=nobody.txt: there is no file of this name
unlearn run=@box 'ids=C0001;C0002' | 4 | ids=...: | one id per line | printf | ids=-
unlearn run=@box ids=C1,C2 | 2 | ids=...: | one id per line
unlearn run=@box ids=@folder | 2 | is a folder: give a file with one id per line
unlearn run=@box | 2 | no erasure was requested: give the ids
unlearn run=@box method=newton ids=@ok.csv | 2 | method=newton | certificate=removal
unlearn run=@box method=sisa ids=@ok.csv | 2 | method=sisa | needs an ensemble
certify run=@box inputs=@no.csv | 4 | no.csv | inputs
certify run=@box inputs=@folder | 4 | folder
certify run=@box inputs=@words.txt | 2 | words.txt
certify run=@box inputs=@empty.csv | 2 | empty.csv
certify run=@box inputs=@q_none.csv | 2 | q_none.csv: the file has no rows
certify run=@box inputs=@q_narrow.csv | 2 | q_narrow.csv: each record in this file has 1 features, but the model was trained on 2
certify run=@box inputs=@q_wide.csv | 2 | q_wide.csv: each record in this file has 3 features
certify run=@box inputs=@q_column.csv | 2 | q_column.csv: there is no column or key 'x'
certify run=@box inputs=@q_nan.csv | 2 | column 'x' (inputs) has NaN or inf in row 2 of the data (line 3 of the file)
certify run=@box inputs=@q_huge.csv | 2 | NaN or infinite feature
certify run=@box inputs=@q_label.csv | 2 | q_label.csv: row 2 of the data (line 3 of the file) has the label 'up'
predict run=@box inputs=@q_twice.csv mechanism.eps=1 | 2 | q_twice.csv | 'p' 2 times
plan run=@box inputs=@q.csv | 2 | q.csv | labels
plan run=@box mechanisms=[noisy_argmax] | 2 | noisy_argmax | ensemble
predict run=@box mechanism.eps=1 total.queries=1 | 2 | total.queries=1 is less than the number of queries, which is 20
predict run=@box mechanism.mu=1 | 2 | unknown key 'mechanism.mu'
predict run=@box mechanism=noisy_argmax mechanism.eps=1 | 2 | ensemble
predict run=@box mechanism.eps=1 mechanism.classes=3 | 2 | mechanism.classes=3, but the model has 2
predict run=@sparse mechanism.eps=1 | 2 | unproved=refuse: condition a
predict run=@undeclared mechanism.eps=1 | 2 | condition e | training.chosen_on
predict run=@box mechanism=release_weights total.eps=1 total.delta=1e-5 | 2 | linear head
predict run=@head mechanism=objective_perturbation total.eps=1 total.delta=1e-5 | 2 | certificate=stability does not compute a minimiser
data prepare imdb prepare.reviews=@no.csv | 4 | no.csv | prepare.reviews
data prepare imdb prepare.reviews=@ok.csv | 2 | ok.csv: there is no column or key 'text'
data prepare amex | 4 | train_data.csv does not exist | kaggle
start @no.csv | 4 | no.csv
start @ok.csv | 2 | this terminal is not interactive | public=YES_OR_NO | answers=FILE.yaml
data inspect @no.csv | 4 | no.csv
start @twices.csv | 4 | twices.csv does not exist | did you mean | twice.csv'?
data inspect @empty.csv | 2 | empty.csv
train training.lrr=1 | 2 | 'training.lrr' | did you mean 'training.lr'
train dataset.centre=1 | 2 | 'dataset.centre' | did you mean 'dataset.center'
{VECTORS}@vectors.npz features=relu | 2 | unknown key 'features'; did you mean 'certificate/features=relu'
{VECTORS}@vectors.npz certificate.features=relu | 2 | type certificate/features=relu
train lr=1 | 2 | 'lr' | did you mean 'training.lr'
train 'training.lr=[1' | 2 | 'training.lr=[1' cannot be read
train --resolve | 2 | --resolve
train model=custom model._target_=agt.models.heads.HeadBuilder | 2 | heads.HeadBuilder cannot be created
train model=custom model._target_=torch.nn.Linear | 2 | torch.nn.Linear cannot be created | in_features
train model=custom model._target_=torch.nn.ReLU | 2 | must be nn.Linear, but it is nn.ReLU
train dataset=digits 'dataset.classes=[3,5,8]' | 2 | binary_cross_entropy needs data with two classes
train dataset=digits 'dataset.classes=[3,5,8]' training.loss=squared_error | 2 | needs data with two classes
train dataset=digits model=linear training.loss=squared_error certificate=stability | 2 | training.loss=squared_error
train training.batch.n_max=100 | 2 | n_max=100 | raise n_max
"""
"""What the command line itself, Hydra, or the data refuse."""
# each so many-th whole line is in make test, the refused releases all; the others are in make sweep
QUICK = 4


def cases(table: str) -> list[Case]:
    """(command line, exit code, what the message must name)."""
    rows = ([part.strip() for part in row.split(" | ")] for row in table.splitlines() if row)
    return [(line, int(code), tuple(names)) for line, code, *names in rows]


def _table(name: str, **changes: object) -> None:
    """A csv of 40 good records; ``column=value`` puts a value into its fifth row."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)).round(3), columns=["a", "b"]).astype(object)
    frame["y"] = np.where(rng.random(40) < 0.5, "yes", "no")
    frame["id"] = [f"p{row * row}" for row in range(40)]
    for column, value in changes.items():
        frame.loc[4, column] = value
    frame.to_csv(name, index=False)


def _files() -> None:
    for name in ("ok", "no_label", "one_class", "header", "two_rows"):
        _table(f"{name}.csv")
    for name, value in {
        "missing": np.nan,
        "inf": "inf",
        "huge": "1e400",
        "thousands": "1,234.5",
        "text": "abc",
    }.items():
        _table(f"{name}.csv", a=value)
    _table("twice.csv", id="p4")
    _table("spaces.csv", id="p4 ")
    good = pd.read_csv("ok.csv")
    good.assign(y="yes").to_csv("one_class.csv", index=False)
    good.head(0).to_csv("header.csv", index=False)
    good.head(2).to_csv("two_rows.csv", index=False)
    good.assign(y=good["y"].where(good.index != 2)).to_csv("no_label.csv", index=False)
    good.assign(a=[{"u": 1.0}] * 40).to_parquet("nested.parquet")
    for name, content in {
        "empty.csv": b"",
        "words.txt": b"hello",
        "latin.csv": "a,y\n1,caf\xe9\n2,th\xe9\n".encode("latin-1"),
        "broken.parquet": b"PAR1 nonsense PAR1",
        "broken.npz": b"PK\x03\x04 nonsense",
    }.items():
        Path(name).write_bytes(content)
    x = np.random.default_rng(0).normal(size=(40, 3))
    label = np.arange(40) % 2
    np.savez("vectors.npz", x=x, label=label)
    np.savez("short.npz", x=x, label=label[:39])
    np.savez("objects.npz", x=np.array([{}] * 40, dtype=object), label=label)
    np.savez("nan.npz", x=np.where(np.arange(40)[:, None] == 3, np.nan, x), label=label)
    os.symlink("loop.csv", "loop.csv")
    Path("folder").mkdir()
    Path("conf/dataset").mkdir(parents=True)
    Path("conf/dataset/broken.yaml").write_text("a: [1\nb: 2")
    Path("conf/dataset/gone.yaml").write_text("_target_: agt.data.blobs.Blob\n")
    loop = "_target_: agt.data.blobs.Blobs\ncenter: ${dataset.std}\nstd: ${dataset.center}\n"
    Path("conf/dataset/loop.yaml").write_text(loop)
    rows = np.arange(30)
    pd.DataFrame({"a": rows % 2, "b": rows % 2, "c": rows}).to_csv("even.csv", index=False)
    Path("plain.xlsx").touch()
    Path("list.yaml").write_text("- 1\n")
    points = pd.DataFrame({"x1": [1.0, -1.0], "x2": [1.0, -1.0]})
    for name, queries in {
        "": points,
        "_none": points.head(0),
        "_narrow": points[["x1"]],
        "_wide": points.assign(x3=0.0),
        "_column": points.rename(columns={"x1": "u", "x2": "v"}),
        "_nan": points.assign(x2=[1.0, np.nan]),
        "_huge": points * 1e300,
        "_label": points.assign(label=["left", "up"]),
        "_twice": points.assign(id="p"),
        "_half": points.assign(label=["right", None]),
    }.items():
        queries.to_csv(f"q{name}.csv", index=False)


def _runs() -> None:
    def run(line: str) -> None:
        assert main([*shlex.split(line), "-q", "--json"]) == 0, line

    tiny = f"{shlex.join(['train', *TINY])} training.epochs=3"
    head = HEAD + "training.clip=0.5 training.epochs=5 training.chosen_on=public"
    run(f"{tiny} training.chosen_on=public hydra.run.dir=box")
    run(f"{tiny} hydra.run.dir=undeclared")
    run(
        f"{tiny} training.chosen_on=public kgrid=sparse kgrid.max=null kgrid.values=[0,2] "
        "hydra.run.dir=sparse"
    )
    run(f"{head} hydra.run.dir=head")
    run("certify run=box map_resolution=0 hydra.run.dir=certified")
    run(
        "predict run=head mechanism=release_weights total.eps=1 total.delta=1e-5 "
        "hydra.run.dir=released"
    )
    for name in (
        "edited_manifest",
        "edited_metrics",
        "edited_config",
        "no_bounds",
        "no_manifest",
        "killed",
        "failed",
    ):
        shutil.copytree("box", name)
    for name, old, new in (
        ("edited_manifest/manifest.json", "bounds", "bounts"),
        ("edited_metrics/metrics.json", '"k_max": 3', '"k_max": 9'),
        ("edited_config/config.yaml", "name: add_remove", "name: remove"),
        ("killed/status.json", '"done"', '"running"'),
        ("failed/status.json", '"done"', '"failed", "error": "ConfigError: a batch is too large"'),
    ):
        text = Path(name).read_text()
        assert old in text, name
        Path(name).write_text(text.replace(old, new, 1))
    Path("no_bounds/bounds/k=00002.safetensors").unlink()
    Path("no_manifest/manifest.json").unlink()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bad files, and runs good and bad, that no case may change."""
    home = tmp_path_factory.mktemp("catalogue")
    before = Path.cwd()
    os.chdir(home)
    try:
        _files()
        _runs()
    finally:
        os.chdir(before)
    return home


def contents(folder: Path) -> dict[str, str]:
    """File -> its hash."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def unchanged_home(home: Path) -> Iterator[Path]:
    """The same files, which all cases together leave as they were."""
    before = contents(home)
    yield home
    assert contents(home) == before


def check_whole(folder: Path) -> None:
    """Every run that was begun says how it ended, and nothing lies about half written."""
    assert not [path for path in folder.rglob("*") if ".part" in path.name]
    runs = [path for path in folder.glob("outputs/*/2*") if not path.name.endswith("_sweep")]
    runs += [
        path for path in folder.glob("outputs/*/*_sweep/*") if path.is_dir() and path.name[0] != "."
    ]
    for run in runs:
        status = json.loads((run / "status.json").read_text())
        assert status["state"] in ("done", "failed"), run
        assert (status["state"] == "failed") == ("error" in status)


def _marked() -> Iterator[Any]:
    for number, case in enumerate(cases(WHOLE)):
        slow = number % QUICK and not case[0].startswith(("predict", "ledger", "certify"))
        yield pytest.param(
            *case, id=case[0].replace("@", ""), marks=[pytest.mark.sweep] * bool(slow)
        )


@cache
def chosen(command: str, groups: tuple[str, ...]) -> bytes:
    """The configuration with these options of groups, pickled: reading it is faster than a deep
    copy.
    """
    return pickle.dumps(OmegaConf.create(compose_command(command, groups, complete=False)))


def refuse(words: list[str]) -> None:
    """Check a command's settings and configure it, as its line would."""
    name, *rest = words
    rest = usage.settings_from_positionals(name, rest)
    groups = tuple(
        word
        for word in rest
        if word.partition("=")[0] in config_files.groups_of_command(usage.COMMANDS[name].config)
    )
    config = pickle.loads(chosen(name, groups))
    for override in OverridesParser.create().parse_overrides(
        [word for word in rest if word not in groups]
    ):
        OmegaConf.update(config, override.key_or_group, override.value())
    given = OmegaConf.to_container(config, resolve=True)
    check_settings(name, given)
    settings = resolve_settings(name, given, rest, Console(quiet=True))
    with trusting(trusted_code(settings)):
        import_module(usage.COMMANDS[name].module).configure(settings)


def test_what_configure_refuses(
    unchanged_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for line, code, names in cases(CONFIGURED):
        with pytest.raises(AgtError) as refused:
            refuse(shlex.split(line.replace("@", f"{unchanged_home}/")))
        missing = [name for name in names if name not in str(refused.value)]
        if missing or refused.value.exit_code != code:
            wrong.append((line, missing, str(refused.value)))
    assert not wrong
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("line", "code", "names"), [*_marked()])
def test_refusal(
    agt: Agt, tmp_path: Path, unchanged_home: Path, line: str, code: int, names: tuple[str, ...]
) -> None:
    said = agt(*shlex.split(line.replace("@", f"{unchanged_home}/")), "--json").ended(code)
    assert "Traceback" not in said.err
    assert "Warning" not in said.err
    assert "bug in agt" not in said.err
    errors = [
        text
        for text in said.err.splitlines()
        if text.startswith(("agt: error: ", "agt: questions to answer: "))
    ]
    assert errors == said.err.splitlines()[-1:], "one message, the last line"
    for name in names:
        assert name in errors[0]
    for name in ("labels.csv", "spent.json", "*.ledger", "conf"):
        assert not list(tmp_path.rglob(name)), "nothing is released or written"
    check_whole(tmp_path)


def test_every_command_is_in_the_catalogue() -> None:
    assert {line.split()[0] for line, _, _ in cases(CONFIGURED + WHOLE)} >= set(usage.COMMANDS)


# -- what takes more than a line
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["config.yaml", "conditions.json", "k=00002.safetensors", "manifest.json"]
)
def test_a_full_disk_says_where_and_leaves_a_failed_run(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Pending.opened

    def opened(self: Pending) -> AbstractContextManager[BinaryIO]:
        if self.path.name == name:
            raise OSError(28, "No space left on device", str(self.path))
        return real(self)

    monkeypatch.setattr(Pending, "opened", opened)
    agt("train", *TINY, "--json").ended(
        1,
        f"{name}: No space left on device: free some space on the disk, or give "
        "output_dir=FOLDER on another disk",
    )
    check_whole(tmp_path)
    monkeypatch.setattr(Pending, "opened", real)
    agt("train", *TINY, "-q").ended(0)


def test_a_file_that_changes_between_check_and_use(
    agt: Agt, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(home / "box", tmp_path / "box")
    real = TrainedRun.open

    def later(self: TrainedRun, *arguments: object) -> object:
        path = tmp_path / "box/bounds/k=00001.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainedRun, "open", later)
    agt("predict", "run=box", "mechanism.eps=1", "--json").ended(2, "k=00001.safetensors")
    assert not list(tmp_path.rglob("spent.json"))
    check_whole(tmp_path)


def test_settings_that_nothing_reads_are_said(agt: Agt) -> None:
    erm = (
        "training=recipe certificate=erm training.lr=3 training.seed=2 kgrid.max=5 "
        "certificate.features.seed=1"
    )
    said = agt(
        *shlex.split(
            f"train dataset=digits model=linear {erm} model.activation=tanh ensemble.hash_salt=x"
        )
    ).ended(0)
    keys = (
        "training.lr",
        "training.seed",
        "kgrid.max",
        "certificate.features.seed",
        "model.activation",
        "ensemble.hash_salt",
    )
    for key in keys:
        assert sum(line.startswith(f"note: {key}: ") for line in said.err.splitlines()) == 1, key
    assert "note: training" not in agt("train", *TINY).err
