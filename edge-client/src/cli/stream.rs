//! The columns of the terminal that a text goes to.

/// The stream that a text goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Its columns, if it is a terminal that has some.
    #[cfg(unix)]
    pub(super) fn columns(self) -> Option<usize> {
        use rustix::termios::tcgetwinsize;
        let size = match self {
            Self::Out => tcgetwinsize(std::io::stdout()),
            Self::Err => tcgetwinsize(std::io::stderr()),
        };
        size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0)
    }

    /// Not known on other systems.
    #[cfg(not(unix))]
    pub(super) fn columns(self) -> Option<usize> {
        None
    }
}
