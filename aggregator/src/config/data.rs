//! The tables that say what the samples are: which data set, and how a network sees it.

use std::sync::LazyLock;

use shared::data::{DATA_SETS, DataSet, OnError, Partition, sets};
use shared::section;
use shared::settings::Kind;
use shared::spec::LabelsAt;

section! {
    /// `[data]`
    pub struct DataTable {
        /// The data set, by name; glyphs are drawn, all others read from files
        pub set: &'static DataSet = &sets::GLYPHS;
        /// Folder of its files, relative to this file
        pub path: Option<String> = None, in Kind::Text(4096), unset "the set's folder in FEDERATION_DATA";
        /// Of a sample of images, csv or safetensors
        pub shape: Option<Vec<u32>> = None, in Kind::Shape, unset "the set's";
        /// Number of classes of csv or safetensors
        pub classes: Option<u32> = None, in Kind::Whole(1, 65_536), unset "the set's";
        /// What labels of images or csv are called, in order
        pub class_names: Option<Vec<String>> = None, in Kind::Names, unset "numbers";
        /// The column of a csv table that holds the labels
        pub label: String = "label".to_owned(), in Kind::Text(200);
        /// What other tasks than classification learn, in order; of csv its columns
        pub targets: Option<Vec<String>> = None, in Kind::Names, unset "data.label";
        /// The column of a csv table that holds texts
        ///
        /// Their bytes are the tokens that a network reads; data.shape says how many of each text.
        pub text: Option<String> = None, in Kind::Text(200), unset "columns are features";
        /// A csv table's feature columns, in the model's order
        ///
        /// Columns are read by these names then, in any order that a device or a later file has them in.
        pub features: Option<Vec<String>> = None, in Kind::Names, unset "those of the header";
        /// At a sample that cannot be used: stop or skip
        pub on_error: OnError = OnError::Stop;
        /// Clients K: simulated, or devices expected to join (more may)
        pub clients: u32 = 10, in Kind::POSITIVE;
        /// How a simulation divides the training samples
        pub partition: Partition = Partition::Iid {};
        /// Seed of who has which samples alone
        ///
        /// Glyphs are drawn from run.seed all the same.
        pub seed: Option<i64> = None, in Kind::SEED, unset "run.seed";
        /// Training samples at most (own sets: evenly spaced)
        pub max_samples: Option<u32> = None, in Kind::POSITIVE, unset "all samples (glyphs: 6000)", was "limit";
        /// Test samples at most, evenly spaced
        pub max_test_samples: Option<u32> = None, in Kind::POSITIVE, unset "all samples (glyphs: 2000)";
        /// Training samples that the server keeps: models are measured on them as well
        ///
        /// No client has them. Each test of the model measures validation-accuracy and validation-loss on them, by which training may
        /// end and the best model is chosen (early-stopping.metric).
        pub validation: Option<u32> = None, in Kind::POSITIVE, unset "none";
        /// Divide training and test samples anew, data.max-test-samples to test on
        pub pooled: bool = false;
        /// Which side has them: device (each its own), or server (it alone; then devices need none)
        pub labels: LabelsAt = LabelsAt::default();
        /// Labelled training samples of the server, equally many of each class
        pub labelled: Option<u32> = None, in Kind::POSITIVE, unset "none";
        /// None; mnist, fashion-mnist, cifar-10, cifar-100: that set's; channels: data.mean; whiten
        pub normalise: String = "none".to_owned(), in Kind::OneOf(&NORMALISE);
        /// Means by channel, for normalise = "channels"
        pub mean: Option<Vec<f64>> = None, in Kind::Numbers, unset "none";
        /// Standard deviations by channel, for the same
        pub std: Option<Vec<f64>> = None, in Kind::Numbers, unset "none", was "deviation";
    }
}

/// The names that `data.normalise` takes: the two ways, and the sets with published statistics.
static NORMALISE: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let published = DATA_SETS.iter().filter(|set| set.normalisation().is_some()).map(|set| set.name);
    ["none"].into_iter().chain(published).chain(["channels", "whiten"]).collect()
});
