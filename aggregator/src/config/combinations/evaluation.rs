//! Tests of models, and what goes by them.

use shared::by_class::MOST_CLASSES;

use super::{Combinations, Raw};
use crate::round::EarlyStopping;

impl Combinations<'_> {
    /// Whether what training is to end by is ever known.
    pub(in crate::config) fn stop(&mut self, raw: &Raw) {
        let metric = raw.early_stopping.metric;
        if metric.is_of_validation() && raw.data.validation.is_none() {
            let by = ("early-stopping.metric", format!("early-stopping.metric = {:?}", metric.name()));
            let reason = "the server keeps no samples to measure it on; say how many, data.validation = 1000";
            self.refuse(&[by, ("data.validation", "no data.validation".to_owned())], reason);
        }
        let end = match raw.early_stopping {
            EarlyStopping { target: Some(target), .. } => {
                ("early-stopping.target", format!("early-stopping.target = {target}"))
            }
            EarlyStopping { patience: Some(rounds), .. } => {
                ("early-stopping.patience", format!("early-stopping.patience = {rounds}"))
            }
            EarlyStopping { .. } => return,
        };
        let accuracy = metric.name().ends_with("accuracy");
        if let Some(target) = raw.early_stopping.target.filter(|target| accuracy && *target > 1.0) {
            let by = ("early-stopping.metric", format!("early-stopping.metric = {:?}", metric.name()));
            let reason = format!("an accuracy is at most 1: {} per cent are {}", target, target / 100.0);
            self.refuse(&[end.clone(), by], &reason);
        }
        let tests = if metric.is_of_clients() {
            ("evaluate.on-clients-every", raw.evaluate.on_clients_every)
        } else {
            ("evaluate.every", raw.evaluate.every)
        };
        if tests.1 == 0 {
            let by = ("early-stopping.metric", format!("early-stopping.metric = {:?}", metric.name()));
            let reason =
                format!("nothing is tested that training could end by; set {} to 1 or more", tests.0);
            self.refuse(&[end, by, (tests.0, format!("{} = 0", tests.0))], &reason);
        }
    }

    /// Whether what clients hold out is ever looked at, and tells anything: they would train on less for nothing.
    pub(in crate::config) fn hold_out(&mut self, raw: &Raw) {
        if raw.evaluate.hold_out > 0.0 && raw.data.set.is_text() {
            let keys = [
                ("evaluate.hold-out", format!("evaluate.hold-out = {}", raw.evaluate.hold_out)),
                ("data.set", format!("data.set = \"{}\"", raw.data.set)),
            ];
            let reason = "a sample of text overlaps those beside it, so that a client would have learned from what it tests with; leave \
                          evaluate.hold-out out: the test split has later lines of each role";
            self.refuse(&keys, reason);
            return;
        }
        if raw.evaluate.hold_out > 0.0
            && raw.evaluate.on_clients_every == 0
            && raw.personalisation.method.is_none()
        {
            let keys = [
                ("evaluate.hold-out", format!("evaluate.hold-out = {}", raw.evaluate.hold_out)),
                ("evaluate.on-clients-every", "evaluate.on-clients-every = 0".to_owned()),
            ];
            let reason = "clients would train on less and test nothing; set evaluate.on-clients-every to 1 or more, or \
                          personalisation.method, or leave evaluate.hold-out out";
            self.refuse(&keys, reason);
        }
    }

    /// Whether there is one model that is tested, which validation samples could be measured with; and whether a pool has test samples.
    pub(in crate::config) fn validation(&mut self, raw: &Raw, key: &str, is_several: bool) {
        let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
        if raw.data.pooled {
            let pooled = ("data.pooled", "data.pooled = true".to_owned());
            if raw.data.max_test_samples.is_none() {
                let none = ("data.max-test-samples", "no data.max-test-samples".to_owned());
                let reason = "say how many of all samples are to test on";
                self.refuse(&[pooled.clone(), none], reason);
            }
            if raw.data.set.is_text() || raw.data.set.format.is_none() {
                let reason = "its splits are not of samples that could be exchanged; leave data.pooled out";
                self.refuse(&[pooled, set.clone()], reason);
            }
        }
        let Some(count) = raw.data.validation else { return };
        let validation = ("data.validation", format!("data.validation = {count}"));
        if raw.data.set.is_text() {
            let reason = "a sample of text overlaps those beside it, so that clients would have learned from it; leave data.validation out";
            self.refuse(&[validation.clone(), set], reason);
        }
        if raw.evaluate.every == 0 {
            let reason = "the samples are looked at where the model is tested; set evaluate.every to 1 or more, or leave data.validation out";
            self.refuse(&[validation.clone(), ("evaluate.every", "evaluate.every = 0".to_owned())], reason);
        }
        if is_several {
            let reason = "the server has no one model to measure on them: leave data.validation out";
            self.refuse(&[validation, ("algorithm", format!("[{key}]"))], reason);
        }
    }

    /// Whether there is an ensemble, tested, whose members could be compared.
    pub(in crate::config) fn inconsistency(&mut self, raw: &Raw, key: &str, is_ensemble: bool) {
        if !raw.evaluate.inconsistency {
            return;
        }
        let asked = ("evaluate.inconsistency", "evaluate.inconsistency = true".to_owned());
        if !is_ensemble {
            let reason = "it is of models that answer together, and this algorithm has one: use ensemble or fafi, or leave \
                          evaluate.inconsistency out";
            self.refuse(&[asked.clone(), ("algorithm", format!("[{key}]"))], reason);
        }
        if raw.evaluate.every == 0 {
            let reason = "it is measured where the ensemble is tested; set evaluate.every to 1 or more, or leave it out";
            self.refuse(&[asked, ("evaluate.every", "evaluate.every = 0".to_owned())], reason);
        }
    }

    /// Whether there is a test by clients whose results by class they could tell, and of not too many classes.
    pub(in crate::config) fn by_class(&mut self, raw: &Raw, classes: Option<usize>) {
        if !raw.evaluate.by_class {
            return;
        }
        let by_class = ("evaluate.by-class", "evaluate.by-class = true".to_owned());
        if raw.evaluate.on_clients_every == 0 {
            let never = ("evaluate.on-clients-every", "evaluate.on-clients-every = 0".to_owned());
            let reason = "clients would test nothing; set evaluate.on-clients-every to 1 or more, or leave evaluate.by-class out. \
                          The server's own test is told by class in any case";
            self.refuse(&[by_class.clone(), never], reason);
        }
        if let Some(classes) = classes.filter(|&classes| classes > MOST_CLASSES) {
            let model = ("model", format!("the {classes} classes of the model"));
            let reason = format!(
                "clients count by class for up to {MOST_CLASSES} classes; leave evaluate.by-class out"
            );
            self.refuse(&[by_class, model], &reason);
        }
    }
}
