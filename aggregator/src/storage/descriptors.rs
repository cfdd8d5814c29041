//! The limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// A limit that every current system allows.
const MODEST: u64 = 10_240;

/// Raises the limit of open files as far as the system allows: each connection that is sent a large model reads a file, and the
/// usual default is 1,024. If that fails, the limit stays.
pub fn allow_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        // Some systems report no limit, and have one.
        limit.current = Some(limit.maximum.map_or(MODEST, |highest| highest.min(MODEST)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Rlimit;

    use super::*;

    #[test]
    fn a_low_limit_is_raised_to_the_highest_that_is_allowed() {
        let before = getrlimit(Resource::Nofile);
        let highest = before.maximum;
        let low = highest.map_or(4096, |highest| highest.saturating_sub(1));
        let lower = Rlimit { current: Some(low), ..before };
        setrlimit(Resource::Nofile, lower).expect("a limit may be lowered");
        allow_all_descriptors();
        assert_eq!(getrlimit(Resource::Nofile).current, highest);
    }
}
