//! The configuration as it is written, before any check across keys.
//!
//! Every section declares its keys once: what they are, what they accept and what they are by default. Those that devices go by as
//! well stand in [`shared::spec`] and beside what they configure.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::path::Path;

use models::{Initialisation, Norm};
use shared::aggregation::{Aggregation, Mixture};
use shared::congestion::Congestion;
use shared::data::Augmentation;
use shared::eligibility::Eligibility;
use shared::section;
use shared::settings::Kind;
use shared::spec::{Evaluation, Personalisation, SecureAggregation, Training, Update};

use super::{DataTable, ModelOrigin, PrivacyTable, TaskName};
use crate::attack::Attack;
use crate::round::{EarlyStopping, Plateau};

section! {
    /// A configuration file's content with every default filled in. [`Raw::default`] is the default run.
    ///
    /// Counts are `u32` and the seed is an `i64` because TOML integers are signed and have 64 bits: every `Raw` can be
    /// written as TOML.
    pub struct Raw {
        /// The run as a whole
        pub run: RunTable = RunTable::default();
        /// What is learned from, and which client has it
        pub data: DataTable = DataTable::default();
        /// What is done to training samples at random
        pub augment: Augmentation = Augmentation::default();
        /// The network
        pub model: ModelTable = ModelTable::default();
        /// Local training
        pub training: Training = Training::default();
        /// Exactly one table: its name selects the algorithm; `aggregator algorithms` lists them
        pub algorithm: BTreeMap<String, toml::Table> =
            BTreeMap::from([("fedavg".to_owned(), toml::Table::new())]), in Kind::Algorithm;
        /// What happens to the updates
        pub aggregation: Aggregation = Aggregation::default();
        /// The server's own training, and how its model is mixed in
        pub server: ServerTable = ServerTable::default();
        /// Differential privacy of devices
        pub privacy: PrivacyTable = PrivacyTable::default();
        /// Whether the server learns sums alone
        pub secure_aggregation: SecureAggregation = SecureAggregation::default();
        /// When a round opens and closes
        pub round: RoundTable = RoundTable::default();
        /// What is asked of a device before it trains
        pub eligibility: Eligibility = Eligibility::default();
        /// What travels
        pub update: Update = Update::default();
        /// Tests of the global model
        pub evaluate: Evaluation = Evaluation::default();
        /// When training ends before all rounds are over
        pub early_stopping: EarlyStopping = EarlyStopping::default(), was "stop";
        /// How clients make models of their own
        pub personalisation: Box<Personalisation> = Box::default();
        /// Heartbeats, and how much is in flight
        pub connection: ConnectionTable = ConnectionTable::default();
        /// What only a simulation can do
        pub simulation: SimulationTable = SimulationTable::default();
    }
}

section! {
    /// `[run]`
    #[derive(Eq)]
    pub struct RunTable {
        /// The run's name, for people and for its folder
        // Sixty characters have at most 240 bytes, and a name in a file system at most 255.
        pub name: Option<String> = None, in Kind::FolderName(60), unset "SET-ALGORITHM, as in glyphs-fedavg";
        /// Communication rounds T; failed ones do not count
        pub rounds: Option<u32> = None, in Kind::POSITIVE, unset "15, of a one-shot algorithm 1";
        /// Root of every random choice: same seed, same bytes
        pub seed: i64 = 1, in Kind::SEED;
    }
}

section! {
    /// `[model]`
    pub struct ModelTable {
        /// A built-in architecture
        ///
        /// Absent if there are layers.
        pub name: Option<String> = Some("cnn-small".to_owned()), in Kind::Model;
        /// Seed of the initial parameters alone
        pub seed: Option<i64> = None, in Kind::SEED, unset "run.seed";
        /// A network of your own, a list of layers
        pub layers: Option<toml::Table> = None, in Kind::Network, unset "that of model.name";
        /// Of resnet-18 and resnet-50: none, batch or group
        pub norm: Option<Norm> = None, unset "the model's own";
        /// What weights start as: uniform or he
        pub initialisation: Option<Initialisation> = None, unset "the model's own; uniform of model.layers";
        /// Tokens, where texts have one class each
        pub vocabulary: Option<u32> = None, in Kind::Whole(1, 65_536), unset "257 with data.text";
        /// Length of a projection of the features, as MOON has it
        ///
        /// Two linear layers, the first as wide as the features and rectified.
        pub projection: Option<u32> = None, in Kind::Whole(1, 65_536), unset "the model's own";
        /// What is learned: classification, multi-label or regression
        pub task: TaskName = TaskName::default();
        /// Of regression: the error from which Huber's loss is a line
        pub huber_delta: Option<f64> = None, in Kind::Number(Included(1e-6), Included(1e9)), unset "the squared error";
        /// The model that the run begins with
        pub from: Option<ModelOrigin> = None;
        /// Tensors that are drawn and not taken of model.from, as in head.*
        ///
        /// Patterns of their names; `*` stands for any characters.
        pub fresh: Option<Vec<String>> = None, in Kind::Names, unset "none";
        /// Tensors that are not learned, as in extractor.*
        ///
        /// Patterns of their names; `*` stands for any characters.
        pub freeze: Option<Vec<String>> = None, in Kind::Names, unset "all are learned";
        /// Small layers that learn beside the model's, which stay as they are
        pub adapters: Adapters = Adapters::default();
        /// The safetensors file of a network of another framework
        ///
        /// Programs of the devices' owners train it (`edge-client join --trainer`).
        pub parameters: Option<String> = None, in Kind::Text(4096), unset "edge-client trains";
        /// Its statistics, as in *.running_mean
        ///
        /// Patterns of their names; `*` stands for any characters.
        pub buffers: Option<Vec<String>> = None, in Kind::Names, unset "*running_* and whole numbers";
        /// Its tensors with their shapes
        pub tensors: Option<Vec<String>> = None, in Kind::Tensors, unset "those of the file; noted when the run begins";
    }
}

section! {
    /// `model.adapters`
    pub struct Adapters {
        /// Low-rank adapters (Hu et al. 2022) beside linear layers
        pub lora: Lora = Lora::default();
    }
}

section! {
    /// `model.adapters.lora`
    pub struct Lora {
        /// Values between the two layers of an adapter
        ///
        /// Adapters are merged into every model that is written.
        pub rank: Option<u32> = None, in Kind::Whole(1, 4096), unset "no adapters";
        /// The weights of the linear layers that have one, as in *attn-*
        ///
        /// Patterns of their names; `*` stands for any characters.
        pub on: Option<Vec<String>> = None, in Kind::Names, unset "all linear layers";
    }
}

section! {
    /// `[server]`
    pub struct ServerTable {
        /// Epochs that the server trains on its labelled samples in each round
        ///
        /// A round that fails for lack of updates leaves the model as it is: what the server has trained in it is lost, too.
        pub epochs: u32 = 1, in Kind::POSITIVE;
        /// Samples in a batch of it; 0 is all at once
        pub batch: Option<u32> = None, in Kind::COUNT, unset "training.batch";
        /// Weight of its loss (lambda_s): multiplies the learning rate
        pub weight: f64 = 1.0, in Kind::RATE;
        /// The three models of which the global one is mixed
        pub mixing: Mixing = Mixing::default(), was "mix";
        /// A lower learning rate once the server learns no more
        pub plateau: Plateau = Plateau::default();
    }
}

section! {
    /// `server.mixing`: shares that sum to 1.
    #[derive(Copy)]
    pub struct Mixing {
        /// Share of the model that the clients' updates give
        pub clients: Option<f64> = None, in Kind::PROBABILITY, unset "1, with data.labelled 0.5";
        /// Share of the model that the server has trained
        pub server: Option<f64> = None, in Kind::PROBABILITY, unset "0, with data.labelled 0.3";
        /// Share of the model that the round began with
        pub previous: Option<f64> = None, in Kind::PROBABILITY, unset "0, with data.labelled 0.2";
    }
}

impl Mixing {
    /// Gives the shares their values: those of `default` if none is set, and 0 beside one that is.
    pub fn complete(&mut self, default: Mixture) {
        let default = match self {
            Self { clients: None, server: None, previous: None } => default.shares(),
            Self { .. } => [0.0; 3],
        };
        let shares = [&mut self.clients, &mut self.server, &mut self.previous].into_iter();
        shares.zip(default).for_each(|(share, default)| _ = share.get_or_insert(default));
    }

    /// The shares of clients, server and the model before; 0 where they are not set.
    #[must_use]
    pub fn shares(&self) -> [f64; 3] {
        [self.clients, self.server, self.previous].map(Option::unwrap_or_default)
    }
}

section! {
    /// `[round]`
    pub struct RoundTable {
        /// Share C of the clients in a cohort; 0 is one client
        pub fraction: f64 = 1.0, in Kind::PROBABILITY;
        /// Updates without which a round does not close
        pub min_updates: u32 = 1, in Kind::POSITIVE, was "round.count.min";
        /// Updates after which a round closes at once
        pub max_updates: Option<u32> = None, in Kind::POSITIVE, unset "the whole cohort", was "round.count.max";
        /// Seconds for which a round waits for members that are not connected
        pub min_wait: f64 = 0.0, in Kind::SECONDS, was "round.time.min";
        /// Seconds after which a round closes with what it has
        pub timeout: Option<f64> = None, in Kind::POSITIVE_SECONDS, unset "600, in a simulation none", was "round.time.max";
        /// Failed rounds in a row after which the run ends
        pub max_failed: Option<u32> = None, in Kind::POSITIVE, unset "100, in a simulation at most 10";
        /// Clients that must be connected before the first round
        pub min_clients_to_start: Option<u32> = None, in Kind::POSITIVE, unset "data.clients", was "start";
        /// Training samples that a device may declare; one with more is refused
        pub max_samples: Option<u32> = None, in Kind::POSITIVE, unset "no bound";
        /// Times the median of the devices' samples that one counts for at most; 0 is no bound
        pub max_weight_ratio: u32 = 100, in Kind::COUNT;
        /// Share of the samples of 3 or more devices that one counts for at most; 1 is no bound
        pub max_weight_share: f64 = 0.5, in Kind::Number(Excluded(0.0), Included(1.0));
        /// Seconds to wait for the known clients after a restart, and for tests of the last model
        pub reconnect_grace: f64 = 30.0, in Kind::SECONDS, was "regather";
        /// What happens to updates that come after their round
        pub staleness: Staleness = Staleness::default(), was "late";
    }
}

impl RunTable {
    /// The folder of the server's key and its devices among the runs: no run has this name.
    pub const IDENTITY_FOLDER: &str = "identity";
    /// Rounds where nothing is said, unless the algorithm needs one alone.
    pub const ROUNDS: u32 = 15;
}

impl RoundTable {
    /// Seconds after which a round of devices closes where nothing is said.
    pub const TIMEOUT: f64 = 600.0;
}

section! {
    /// `round.staleness`
    #[derive(Copy)]
    pub struct Staleness {
        /// Late updates count in the open round (with round.max-updates: FedBuff)
        pub enabled: bool = false, was "keep";
        /// Rounds after which a late update is discarded all the same
        pub max: u32 = 10, in Kind::POSITIVE, was "rounds";
        /// a of (1 + rounds late)^-a, by which a late update is scaled
        pub exponent: f64 = 0.5, in Kind::Number(Included(0.0), Included(10.0)), was "power";
    }
}

section! {
    /// `[connection]`
    #[derive(Copy)]
    pub struct ConnectionTable {
        /// Seconds between a client's heartbeats
        pub heartbeat: f64 = 5.0, in Kind::POSITIVE_SECONDS;
        /// Seconds without one after which a client is lost
        pub timeout: f64 = 15.0, in Kind::POSITIVE_SECONDS, was "lost-after";
        /// What the server sends by: cubic, or bbr for links that lose packets
        pub congestion: Congestion = Congestion::default();
    }
}

section! {
    /// `[simulation]`
    pub struct SimulationTable {
        /// What attackers do
        pub attack: Attack = Attack::default();
        /// Share of the clients that attack, if any do; drawn from run.seed
        pub attackers: f64 = 0.2, in Kind::Number(Excluded(0.0), Included(1.0));
        /// Ids of the clients: those of real devices, to repeat a run
        pub devices: Option<Vec<String>> = None, in Kind::Names, unset "made from run.seed";
        /// Noise and cohorts of [privacy] come from run.seed: repeatable, not private
        pub reproducible_noise: bool = false;
        /// The program that trains the clients of a model.parameters
        pub trainer: Option<String> = None, in Kind::Text(4096), unset "none: there are devices";
    }
}

impl Raw {
    /// Takes over what the run that is `stored` began with, if it is what this asks for: a run that goes on keeps what it began
    /// with, regardless of what its place holds by now.
    pub fn keep_origin_of(&mut self, stored: &Self) {
        if let (Some(asked), Some(begun)) = (&self.model.from, &stored.model.from)
            && asked.is_met_by(begun)
        {
            self.model.from = Some(begun.clone());
        }
    }

    /// This without local paths: a published data set is the same in any folder, and so is a model whose digest is known.
    ///
    /// An explicit timeout that is the default counts as none: older programs have written it into every run.
    #[must_use]
    pub fn without_local_paths(&self) -> Self {
        let mut raw = self.clone();
        let set = raw.data.set;
        raw.data.path.take_if(|path| !set.is_own() && Path::new(path).ends_with(set.name));
        if let Some(from) = raw.model.from.as_mut().filter(|from| from.digest.is_some()) {
            *from = ModelOrigin { digest: from.digest.take(), ..ModelOrigin::default() };
            raw.model.parameters.take();
        }
        raw.round.timeout.take_if(|timeout| *timeout == RoundTable::TIMEOUT);
        raw
    }
}
