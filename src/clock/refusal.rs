//! Why an answer of a time server was not taken, or none came.

/// Reasons; their names are counted in the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The name of the server has no address.
    Name,
    /// Nothing could be sent.
    Network,
    /// Nothing came in time.
    Silent,
    /// Shorter than a reply is.
    Short,
    /// From another address than the one that was asked.
    Source,
    /// To another question.
    Origin,
    /// Not what a server sends.
    Mode,
    /// Of a version that does not exist, or that was not asked for.
    Version,
    /// The server says that it does not know the time.
    Unsynchronised,
    /// Further from a clock than 15 servers.
    Stratum,
    /// A time that is not there.
    Zero,
    /// The server may be off by more than a second.
    Distance,
    /// It took more than a second.
    RoundTrip,
    /// Sent before it was received, or held for longer than the whole exchange took.
    Order,
    /// More than 68 years away: which era is meant cannot be told.
    Era,
    /// Kiss of death: we ask too often.
    KissRate,
    /// Kiss of death: we may not ask.
    KissDeny,
    /// Another kiss of death.
    Kiss,
    /// Most servers say otherwise.
    Minority,
}

impl Refusal {
    /// As it is counted.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Network => "network",
            Self::Silent => "silent",
            Self::Short => "short",
            Self::Source => "source",
            Self::Origin => "origin",
            Self::Mode => "mode",
            Self::Version => "version",
            Self::Unsynchronised => "unsynchronised",
            Self::Stratum => "stratum",
            Self::Zero => "zero",
            Self::Distance => "distance",
            Self::RoundTrip => "round-trip",
            Self::Order => "order",
            Self::Era => "era",
            Self::KissRate => "kiss-rate",
            Self::KissDeny => "kiss-deny",
            Self::Kiss => "kiss",
            Self::Minority => "minority",
        }
    }

    /// Anybody could have sent it: the answer that was asked for may still come.
    pub(super) fn is_of_a_stranger(self) -> bool {
        matches!(self, Self::Source | Self::Origin | Self::Short)
    }
}
