//! The content of the state directory: the device's identity, and the server that it belongs to.

use std::path::Path;

use super::Finding;
use crate::store::{StoreError, client_of};

const SUBJECT: &str = "state";

/// Reads what joining reads first, and changes nothing.
#[must_use]
pub fn look_at(state: &Path) -> Vec<Finding> {
    let place = state.display();
    vec![match client_of(state) {
        Ok(Some(client)) => Finding::ok(SUBJECT, format!("this device is client {client}, as {place} says")),
        Ok(None) => Finding::ok(SUBJECT, format!("none in {place} yet: joining makes it")),
        Err(error) => unusable(&error),
    }]
}

/// The finding that no state directory was named, and the system has no default for it.
#[must_use]
pub fn nowhere(reason: impl Into<String>) -> Finding {
    Finding::problem(SUBJECT, reason, "give joining the same --state DIR as this")
}

fn unusable(error: &StoreError) -> Finding {
    // The error itself says what to do.
    Finding::problem(SUBJECT, error.to_string(), "joining fails until then")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Level;
    use super::*;
    use crate::store::DiskStore;

    #[test]
    fn what_joining_would_stumble_over_is_found_and_left_as_it_is() {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("state");
        let found = || look_at(&state).remove(0);
        assert_eq!(found().level, Level::Ok, "{:?}", found());
        assert!(!state.exists());
        let client = DiskStore::open(&state).unwrap().client().to_string();
        assert!(found().found.contains(&client), "{:?}", found());
        let open = DiskStore::open(&state).unwrap();
        assert_eq!(found().level, Level::Ok, "a client at work is no fault: {:?}", found());
        drop(open);
        for (file, damage, says) in [
            ("identity", "?", "is damaged"),
            ("server", "ff", "new ticket"),
            ("format", "99", "newer version"),
        ] {
            let path = state.join(file);
            let whole = fs::read(&path).ok();
            fs::write(&path, damage).unwrap();
            let problem = found();
            assert_eq!(problem.level, Level::Problem, "{problem:?}");
            assert!(problem.found.contains(says), "{problem:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), damage, "it is as it was");
            match whole {
                Some(whole) => fs::write(&path, whole).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
        }
        assert_eq!(found().level, Level::Ok);
        let file = state.join("format");
        let problem = look_at(&file).remove(0);
        assert_eq!(problem.level, Level::Problem, "{problem:?}");
        assert!(problem.found.contains("in the way"), "{problem:?}");
    }
}
