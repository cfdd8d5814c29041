//! The longer texts of the help.

pub(super) const LONG_ABOUT: &str = "\
The lab's side of a federation: sends the model out, folds the updates that come back, tests, reports.

`aggregator simulate` runs a whole federation in this process; `aggregator serve` runs the same \
configuration with real devices. Without a configuration both use a built-in data set, so that nothing \
needs to be downloaded.";

pub(super) const AFTER_HELP: &str = "\
A first run:
  aggregator simulate
  open runs/glyphs-fedavg/report.html

With devices:
  aggregator ticket --uses 4                  (prints what four devices join with)
  aggregator serve run.toml
  edge-client join TICKET --data DIR          (on each device, once; then without the ticket)

Every run has a directory RUNS/NAME (run.name, or SET-ALGORITHM) with config.toml (the effective configuration), rounds.jsonl (one line \
per round), model.safetensors (or ensemble.safetensors, of an algorithm that keeps the clients' models side by side) and \
report.html. A run that was stopped or killed continues when the same \
command is given again; nothing is ever overwritten. With --set run.rounds=N a run that is stopped or complete goes on to N rounds, as if it \
had begun with N.

Exit codes:
  0  done
  1  an internal error: please report it
  2  the command line or the configuration is wrong
  3  something on this machine is in the way: disk, data, port, identity
  4  the run ended without success: no client delivered an acceptable update, or training diverged
  5  `aggregator status`: the run is not over, and no process serves it, or the server that leads is silent
  130, 143  stopped by Ctrl-C or SIGTERM, once all is safe, or at once when it comes a second time (continue with the same \
command); the process ends by that signal, so that a shell's loop stops as well";

#[cfg(feature = "simulate")]
pub(super) const SIMULATE: &str = "\
A simulation that is killed continues from its last closed round when the same command is given again. A power failure \
in the middle can cost the run: its rounds are not waited for until the disk has them.

Examples:
  aggregator simulate
  aggregator simulate --set algorithm.fedsgd={} --set training.batch=0 --set training.epochs=1
  aggregator simulate tests/configs/mnist-2nn.toml --set training.epochs=5
  aggregator simulate run.toml --from runs/a
  aggregator simulate --transport quic";

pub(super) const SERVE: &str = "\
The first start makes the server's key in the identity directory. Devices join with a ticket, which names the server's \
key and addresses and is printed by `aggregator ticket`, before or while the server runs; a device believes no other \
server from then on, and needs the ticket no more. With --enrolment approve a device may come without a ticket, by the \
server's address, and waits for `aggregator devices approve`; with --enrolment anyone, which is for benches and tests, it \
is let in. `aggregator devices revoke` throws a device out at once.

The first round begins when round.min-clients-to-start clients have joined: data.clients, unless it is set. More may join \
at any time, and all take part; data.partition and data.max-samples divide simulated data and say nothing of the \
devices' own. Ctrl-C stops the run cleanly; devices then wait for the server to come back.

A server that devices reach in two networks is served with --also-at LAN-ADDRESS:4433, for example: devices learn all of its \
addresses, keep them, also over a restart, and go on at another one when theirs is silent. A run whose folder and identity move to \
another machine goes on there with all devices that learned its address before.

--from RUN begins with the newest model of another run, --from FILE with a model's file. The run notes which model that was, and \
goes on without the other one.

When the run is over, its model and report are written at once. Every known device is told, and confirms it. While some are \
away, the server stays for --drain-timeout seconds, or until all of them have been told. It says how many were not told: such \
a device looks for the server until it is stopped, or until another run is served, which it joins.

--event-log FILE appends what happens as JSON lines, for scripts and log collectors. Every line has `time` (UTC), `level` \
(data, aside, remark, alarm), `event` (its kind: connected, result, round, disk-full, ...) and the fields of that kind, and, \
except for data, `text` as the terminal shows it.";

pub(super) const STATUS: &str = "\
It reads the database in the identity directory, which `aggregator serve` writes, while a server is at work or when none \
is. Shown are all runs that are being served; if none is, the one that was served last.

Of an open round it says since when it waits for which devices, and what each is at: receiving the task, training, \
uploading, or away, with the time since it was last heard. Devices are named by the beginning of their identity.

The exit code is 0 if what is shown is served or is over, and 5 if a run is not over and no process serves it; 3 if no run \
was ever served here, or the database cannot be read. --json prints one object per run.

Examples:
  aggregator status
  aggregator status --watch                          again whenever it changes
  aggregator status --rounds 20 --events 50
  aggregator status --run glyphs-fedavg-2 --json";
pub(super) const PAGE: &str = "\
It is a process of its own, which reads the runs and the server's database, and touches no round. `serve --page` and \
`simulate --page` start it beside themselves.

Every user of this machine may look, and change devices, unless there is a --token-file or it is started with --read-only. From another \
machine: `ssh -L 8420:127.0.0.1:8420 HOST`, or a proxy with TLS and --host NAME. /metrics is for Prometheus.

Examples:
  aggregator page
  aggregator page --runs lab --read-only
  aggregator page --listen 0.0.0.0:8420 --token-file page.token --host lab.example";
pub(super) const TICKET: &str = "\
The ticket goes to standard output, and with it, on a terminal, a code for a camera. It admits a device: pass it \
on as you would a password. The server need not run. Its addresses are those that this machine has in all its networks, at most \
eight, with the port that `aggregator serve` listened on last; devices behind a router or in another network need --address.

It expires by this machine's clock. The first ticket makes the server's key if there is none, which is said: give the --runs or \
--identity of the server, and where that is a service, its user, as in `sudo -u aggregator aggregator ticket --runs \
/var/lib/aggregator`.

Examples:
  aggregator ticket                                  one device, within a day
  aggregator ticket --uses 20 --expires 7d           a box of devices
  aggregator ticket --address lab.example:4433       a server with a name
  aggregator ticket --address lab:4433,vpn:4433      a server in two networks
  aggregator ticket --list; aggregator ticket --withdraw 3";

pub(super) const CONFIG: &str = "\
The output is a complete configuration file: save it, change it, run it. Keys that are not set stand there as comments, with \
what it is now.

  aggregator config > run.toml

A relative data.path is relative to the file that it stands in; in --set, to the current directory.";

pub(super) const PRIVACY_PLAN: &str = "\
Examples:
  aggregator privacy plan --devices 1000 --cohort 100 --rounds 100 --epsilon 8
  aggregator privacy plan --devices 20 --cohort 20 --rounds 10 --epsilon 8 --delta 1e-2
  aggregator privacy plan --devices 1000 --cohort 100 --rounds 500 --epsilon 8 --max-participations 20
  aggregator privacy plan --devices 1000 --cohort 100 --rounds 100 --epsilon 8 --config run.toml

The account is that of privacy loss distributions, for runs that differ by one device: a reader of all models of a run learns \
hardly more than without that device. It holds where the server is trusted, whom a round asks is kept secret, and who \
can take part does not depend on the data.";

pub(super) const PRIVACY_SPENT: &str = "\
Examples:
  aggregator privacy spent --noise 1.1 --rate 0.1 --rounds 100 --delta 1e-5
  aggregator privacy spent --noise 3.5 --rounds 30 --delta 1e-5 --secure-aggregation 1000

It is the epsilon that a run with this noise says of itself. With --json also that of the account of Rényi, which is larger as a \
rule.";

pub(super) const DESCRIBE: &str = "\
Examples:
  aggregator data describe
  aggregator data describe --set data.partition.shards.per-client=2
  aggregator data describe run.toml --html labels.html

The picture has a row per client and a column per class: the darker, the more samples. The label skew is the \
mean over clients of the total variation distance between the client's labels and all labels: 0 is IID, \
0.9 is one class per client out of ten equal ones.";

#[cfg(feature = "simulate")]
pub(super) const COMPARE: &str = r#"The experiment's file:
  title = "FedAvg against FedSGD"
  seeds = 3                     # 1, 2 and 3; or a list
  target = 0.97                 # accuracy to count rounds and bytes to
  baseline = "fedsgd"           # the variant that the others are compared with
  [base]                        # any keys of the configuration, for all runs
  [variants.fedsgd]             # any keys of the configuration: what tells the variants apart
  [variants.fedavg]
  [grid.partition]              # settings in which all variants are compared; several axes multiply
  iid = { data.partition.iid = {} }
  shards = { data.partition.shards.per-client = 2, target = 0.9 }
  [grid]                        # an axis that is one key with its values
  "training.epochs" = [1, 5]
  [forms.reduced]               # --form reduced: any keys, and seeds, target, variants = [...], grid.AXIS = [...]
  [forms.full]
  [paper]                       # published numbers, shown beside: CELL/VARIANT
  source = "McMahan et al. 2017"
  rounds = { "iid/epochs=1/fedavg" = 87 }
  accuracy = { "iid/epochs=1/fedavg" = 97.0 }
  [interpolate]                 # mix the final models of seeds 1 and 2, 3 and 4 ...
  steps = 15

Later ones win: defaults, [base], [forms.FORM], the point of each axis, [variants.NAME], --set.

For one seed, all variants have the same partition, initial parameters and cohorts, as far as none sets data.*, model.* or round.fraction to something else. Runs that are complete are not repeated; an experiment that was stopped or killed continues with the same command. If the file has changed since, the runs that it concerns are named, and made again with --replace.

Examples:
  aggregator compare tests/configs/experiments/fedavg-table2.toml
  aggregator compare tests/configs/experiments/fedavg-table2.toml --form full --jobs 8
  aggregator compare my.toml --plan
  aggregator compare runs/a runs/b runs/b-seed-2

Directories of runs instead of a file are compared as they are: runs that differ in run.seed alone are seeds of one variant."#;

pub(super) const RUNS: &str = "\
A run is named by its directory, or by its name alone: the name of its directory in --runs DIR. So it is in `report RUN`, \
`compare RUN RUN`, `evaluate --model RUN` and `predict --model RUN`.

Examples:
  aggregator runs                                    all runs, those that were active last at the end
  aggregator runs --runs experiments/table2-full     the runs of an experiment
  aggregator runs show glyphs-fedavg
  aggregator runs diff glyphs-fedavg glyphs-fedavg-2
  aggregator runs prune --dry-run
  aggregator runs archive glyphs-fedavg --to glyphs.tar.gz

Nothing is deleted without a question on a terminal, or --yes. A run that a process works on stays.";

pub(super) const RUNS_LIST: &str = "\
States are running, paused (on request, `aggregator resume` goes on), complete, stopped (by an operator), failed (`runs show` says why) and \
interrupted (its process was killed). What is not over can be continued by the command that began it (`over` in --json). The age is the \
time since the last round closed or the run ended. `changed` are the keys that have another value than by default. A folder that holds no \
run, or one that cannot be read, has a line below the table with the reason.

--json prints one object: `directory`, `runs` and `folders`. Fields of a run, whose names stay: run, path, id, state, reason (of a failed \
run), algorithm, model, data, rounds, planned, accuracy, best_accuracy, best_round, loss, best_loss, bytes, begun, active (UTC: the last round or the end), \
changed (key: value), served (devices take part, or did), pruned, over. `runs show --json` adds origin (begun, processes, data), \
files (name, bytes), prunable_bytes, wall_seconds. Fields of a folder: folder, path, kind (runs, identity, damaged, leftover, other), \
reason, runs (in it), bytes. Accuracies are shares from 0 to 1; what is not known is null.";

pub(super) const RUNS_DELETE: &str = "\
A run goes in one step: it is renamed to RUN.deleting first, which no command takes for a run, and removed then. If that is cut off, \
`aggregator runs prune` removes the rest. If a process works on one of several runs, all stay.

Devices of a served run that keep client state of it (SCAFFOLD, MOON, FedMatch, Local) remove that themselves after some later runs. The \
server's record of the run (`aggregator status`) stays.

--json prints one object: deleted (run, path, bytes of each), bytes.";

pub(super) const RUNS_PRUNE: &str = "\
Without a rule, runs that are over lose what only continues them: checkpoints, opened rounds, accepted updates and what simulated clients \
keep in state/. They cannot go on with more rounds (--set run.rounds=N) then. Models, rounds, configuration, report and its origin stay, and \
so do the clients' own models where those were made or are what the algorithm learns. Runs that are not over stay as they are.

With --failed, --older-than or --keep whole runs are deleted instead, with their results: those that all of the given options name. --keep N \
never names the N runs of all that were active last. No run that a process works on is named.

What is left of a deletion that was cut off is always removed.

--json prints one object: deleted and pruned (run, path, bytes of each), bytes, done (false with --dry-run).

Examples:
  aggregator runs prune --dry-run
  aggregator runs prune --failed --older-than 7d
  aggregator runs prune --keep 20 --yes";

pub(super) const RUNS_ARCHIVE: &str = "\
The archive holds one folder, of the run's name, with all that the run is, also what continues it. Unpack it with `tar xzf FILE -C runs` on \
any machine, and use the run there: `runs show`, `report`, `evaluate`, `compare`. A run that is not over goes on there with the same command; \
the data must be there as well (--set data.path=DIR), and for devices the server's key, which is not in it.

The same run gives the same bytes: names are sorted, owners are left out, and all files have the date at which the run began. Locks and \
transfers under way are left out.

--json prints one object: run, path, file, bytes, files (their number), content_bytes.";

pub(super) const MODELS: &str = "\
A network of your own is a list of layers in the configuration. It runs on every device, whose program \
needs no change; aggregator config prints it with every setting, and any mistake names its layer.

  [model]
  layers = [
      { conv = { out = 32, kernel = 5, padding = \"same\" } }, \"relu\", { max-pool = 2 },
      \"flatten\", { linear = 128 }, \"relu\", { dropout = 0.5 },
      { linear = \"classes\" },
  ]

The last linear layer begins the head, which personalisation works on. To say otherwise, name the parts: \
layers.extractor = [...], layers.projection = [...] if there is one, and layers.head = [...].

Examples:
  aggregator models
  aggregator models lenet-5 > run.toml";

pub(super) const INIT: &str = "\
How data lies in a folder:
  images       DIR/train/CLASS/*.png or *.jpg, and DIR/test/CLASS/; or DIR/CLASS/ alone
  CSV          DIR/train.csv and DIR/test.csv, with a header; one column holds the labels
  safetensors  DIR/train.safetensors and DIR/test.safetensors, with tensors x and y
  IDX          MNIST's four files
  text         one .txt file in DIR

The test split may be missing: then each client holds some of its samples out, and tests on them.

Example:
  aggregator init photos
  aggregator simulate run.toml
  aggregator predict --model runs/photos --data holiday.jpg";

pub(super) const EXPORT: &str = "\
For torch and numpy two files are written, which need nothing of this program: NAME.py, the network as source to be read, run and imported, and \
NAME.safetensors, its weights. NAME.py has the network, `load`, `prepare` (bytes to numbers, crop, normalisation, as the model \
was trained), `predict` and the names of the classes. With torch the network is an nn.Module, and the weights are its state_dict; with \
numpy nothing else is needed. Run with samples, it says what the model says of them.

For onnx one file is written, of opset 17: its input `samples` are images as numbers from 0 to 1, rows of tables, or tokens as 64-bit \
integers, any number of them; its outputs are `logits` and `probabilities`. Crop and normalisation are in it unless --preparation \
says outside, and its metadata have the names of the classes.

Of an ensemble, all members and their fusion are written. Personal models stay on their devices: edge-client answers with them there, \
and has no export.

Examples:
  aggregator export --model runs/photos --to torch --out photos
  python3 photos/network.py holiday.jpg
  aggregator export --model runs/photos --best --to numpy --out photos/small.py
  aggregator export --model runs/photos --to onnx --out photos.onnx";
