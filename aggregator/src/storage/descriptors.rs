//! How many files may be open at a time.

use rustix::process::{Resource, getrlimit, setrlimit};

/// What every system of today allows that says nothing of its own.
const MODEST: u64 = 10_240;

/// Lets this process have as many files open as the system allows it: every connection that is sent a large model reads a file,
/// and a shell allows 1,024 by default. Where the system does not let it, nothing changes.
pub fn allow_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        // Some systems say that there is no limit, and have one.
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
