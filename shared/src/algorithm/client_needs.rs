//! What an algorithm takes of a client: models and batches in memory, and passes through networks.

/// What a client needs in a round. The default is federated averaging's.
///
/// It is for estimates: of the [memory](crate::memory) for which a device refuses a run, and of the time of an experiment. It decides
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNeeds {
    /// Models in the broadcast.
    pub received: u32,
    /// Models that the client holds beside these and the one in training: its own state and what it is made of.
    pub held: u32,
    /// Models in the update.
    pub sent: u32,
    /// Networks that are run beside the one in training, and learn nothing.
    pub frozen: u32,
    /// Whether what these say of a sample is kept from epoch to epoch, where the sample stays the same.
    pub keeps_frozen: bool,
    /// By what the samples of a step exceed a batch of the configuration.
    pub views: u32,
    /// Forward passes of a batch before its step, in which nothing is learned.
    pub predictions: u32,
    /// Samples in a batch, if the algorithm and not the configuration decides: at most this many.
    pub batch: Option<u64>,
}

impl Default for ClientNeeds {
    fn default() -> Self {
        Self {
            received: 1,
            held: 0,
            sent: 1,
            frozen: 0,
            keeps_frozen: false,
            views: 1,
            predictions: 0,
            batch: None,
        }
    }
}
