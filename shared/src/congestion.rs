//! Congestion control: how much a sender has in flight. Each side chooses it for what it sends; the other cannot tell.

use serde::{Deserialize, Serialize};

use crate::named;

/// How a sender finds out what the network takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// A lost packet means congestion (RFC 9438): fair beside other senders, and slow where packets are lost for other reasons
    #[default]
    Cubic,
    /// By measured bandwidth and delay: many times faster where packets are lost for other reasons, as on radio links
    ///
    /// It is the first version of BBR, which can displace other senders on a link that they share.
    Bbr,
}

named!(Congestion);
