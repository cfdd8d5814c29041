//! Experiments: several variants of a configuration on paired seeds, compared.
//!
//! `aggregator compare experiment.toml` runs every variant with every seed. Seeds are paired: for one seed, all variants
//! of a cell have the same partition, the same initial parameters and the same cohorts, as far as the variants do not set
//! otherwise what these are drawn by: `data.*`, `model.*` with `model.seed`, `round.fraction`. A variant with cohorts of
//! another size, as one where every client is alone, has other cohorts. Differences are taken seed by seed, and their
//! spread is that of the difference, which at small scale is a fraction of the spread of either side.
//!
//! # The file
//!
//! ```toml
//! title = "FedAvg against FedSGD"        # what it is about
//! about = "Rounds to 97 % on MNIST."     # at more length; optional
//! seeds = 4                              # 1 to 4; or a list; 3 without this
//! target = 0.97                          # accuracy to count rounds and bytes to, or a variant whose final accuracy
//!                                        # with the same seed it is, or "peak", the best of each run itself; optional
//! baseline = "fedsgd"                    # the variant that the others are compared with; optional
//!
//! [base]                                 # what all runs share: any keys of the configuration
//! data = { set = "mnist", clients = 100 }
//! model.name = "mlp-2nn"
//! round.fraction = 0.1
//!
//! [variants.fedsgd]                      # what tells the variants apart: any keys of the configuration
//! training.batch = 0
//! training.optimizer.sgd.learning-rate = 0.5
//!
//! [variants.fedavg]
//! training.batch = 10
//! training.optimizer.sgd.learning-rate = 0.1
//!
//! [grid.partition]                       # settings in which all variants are compared; axes multiply; optional
//! iid = { data.partition.iid = {} }
//! shards = { data.partition.shards.per-client = 2, target = 0.9 }   # with a target of its own
//!
//! [grid]                                 # an axis that is one key and a list of its values
//! "training.epochs" = [1, 5]
//!
//! [tune]                                 # values of one or two keys, of which the best is chosen in each cell; optional
//! "training.optimizer.sgd.learning-rate" = [0.03, 0.1, 0.3]
//! [tune.variants]                        # a variant may have a grid of its own, or none
//! fedavg = { "training.optimizer.sgd.learning-rate" = [0.1, 0.2] }
//!
//! [forms.reduced]                        # what a form changes; `--form` chooses one; optional
//! run.rounds = 30
//! seeds = 2                              # it may also set seeds, a target and `tune`, and leave out
//! variants = ["fedsgd", "fedavg"]        # variants (or a table by their names, with more keys for each)
//! grid.partition = ["iid"]               # and points of the grid
//!
//! [forms.full]
//! run.rounds = 1000
//!
//! [paper]                                # published numbers, shown beside ours; optional
//! source = "McMahan et al. 2017, table 1"
//! rounds = { "iid/epochs=1/fedavg" = 87 }            # CELL/VARIANT: rounds to the target
//! accuracy = { "iid/epochs=1/fedavg" = 97.0 }        # final accuracies in percent
//! metrics."iid/epochs=1/fedavg" = { mfe-local-test = 92.9 }   # tests of personal models, in percent
//! from = "paper"                         # who says so: paper, text (a later one), program (the authors'), third-party, inferred
//! statistic = "last"                     # accuracies are the last of a run, or the best: ours stand beside in the same
//! form = "full"                          # the form that has their set-up, or a list, as of forms with fewer cells
//! differs = "half the samples"           # what of it that form has otherwise; without it they are the same
//!                                        # (several sources are [papers.NAME], with a column each)
//!
//! [interpolate]                          # mix the final models of seeds 1 and 2, 3 and 4 ...; optional, with even seeds
//! steps = 15                             # values of theta
//! from = -0.2
//! to = 1.2
//! train = true                           # loss on all training samples, not on the test samples
//! ```
//!
//! A run's configuration is the defaults, under `[base]`, under the form, under the cell's points, under the variant (and the
//! form's changes to it), under `--set` of the command line. `run.seed` and `run.name` are the experiment's to set. Mistakes are all reported before
//! anything runs, with their lines.
//!
//! With `[tune]` every combination of the values runs with the first seed; the one that needs the fewest rounds to the target (else with
//! the best accuracy) is chosen, variant by variant and cell by cell, and runs with the other seeds. A candidate stops when it cannot win
//! any more: another one has reached the target in as many rounds.
//!
//! # What it leaves
//!
//! ```text
//! experiments/NAME-FORM/
//!     report.html          tables and curves, with links to the reports of the runs
//!     results.csv          one line per run, with the means over its rounds of what clients measured
//!     results.json         every number of the tables
//!     mixtures.csv         theta against loss, with [interpolate]
//!     shards/2-of-5.json   which part of it was run here, and on what, with `--shard 2/5`
//!     runs/CELL--VARIANT--SEED/    ordinary run directories; CELL--VARIANT--VALUE--SEED where values are tuned
//! ```
//!
//! The runs are the only state: a complete run is not repeated, and an interrupted run is continued. A run's configuration
//! and the digests of its data show whether it is still the planned one. If the experiment or the data have changed, the
//! affected runs are named, and repeated only on demand (`--replace`), which sets the old ones aside. More rounds change
//! nothing of the rounds that a run has, nor does another early end that it has not passed: an unfinished run goes on.
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | the file |
//! | [`existing`] | runs that exist already, in the place of a file |
//! | [`plan`] | all its runs with their configurations, and where each stands on disk |
//! | [`choice`] | what is chosen among the candidates of `[tune]` |
//! | [`content`] | what the files that runs learn from held |
//! | [`shard`] | the parts of it that several machines run |
//! | [`collect`] | their runs, brought together |
//! | [`queue`] | what is left, handed out |
//! | `workers` | the same of several workers, which share a store (feature `cluster`) |
//! | [`runs`] | running it, several at a time |
//! | [`step`] | what happens to a run |
//! | [`progress`] | remaining time |
//! | [`live`] | the page while it runs |
//! | [`seed`] | the results of single runs |
//! | [`results`] | means, spreads, paired differences |
//! | [`curves`] | means over rounds, and the runs behind them |
//! | [`troubles`] | what went wrong |
//! | `notes` | remarks on the numbers |
//! | `cells`, `table`, `personal`, `strips` | tables and strip plots as values |
//! | [`text`], [`page`], [`mod@csv`] | the results for terminals, browsers and spreadsheets |
//! | [`interpolation`] | mixtures of two final models |

mod cells;
pub mod choice;
pub mod collect;
pub mod content;
pub mod cost;
pub mod csv;
pub mod curves;
pub mod existing;
pub mod experiment;
pub mod interpolation;
pub mod live;
mod notes;
pub mod page;
mod personal;
pub mod plan;
pub mod progress;
pub mod queue;
pub mod results;
pub mod runs;
pub mod seed;
pub mod shard;
pub mod step;
mod strips;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod troubles;
#[cfg(feature = "cluster")]
pub mod workers;
