//! The check of `run.name`: it names a folder among others.

use super::combinations::Combinations;
use super::{Raw, RunTable};

impl Combinations<'_> {
    /// A run's folder must not be one of the server's among the runs.
    pub(super) fn run_name(&mut self, raw: &Raw) {
        let Some(name) = &raw.run.name else { return };
        // Some file systems do not tell cases apart.
        if name.eq_ignore_ascii_case(RunTable::IDENTITY_FOLDER) {
            let reason = "the folder of this name among the runs holds the server's key and what it knows of devices; name the \
                          run otherwise";
            self.refuse(&[("run.name", format!("run.name = {name:?}"))], reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::Config;

    #[test]
    fn no_run_takes_the_folder_of_the_server() {
        let named = |name: &str| {
            let raw = Raw::layered(None, &[format!("run.name={name}")]).expect("a key that exists");
            Config::validate(&raw, RunId::from_bytes([1; 8])).map(|config| config.spec.name)
        };
        for reserved in ["identity", "Identity"] {
            let text = named(reserved).expect_err("it is the server's").to_string();
            assert!(text.contains("run.name") && text.contains("server's key"), "{text}");
        }
        assert_eq!(named("identity-2").expect("any other name").as_str(), "identity-2");
    }
}
