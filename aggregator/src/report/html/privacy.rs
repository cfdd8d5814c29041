//! What a private run promises, and what its page leaves out for that.

use maud::{Markup, html};

use super::{Reader, Report};

/// Whether the page is of a private run: figures of single clients are not on it.
pub(super) fn is_private(report: &Report<'_>) -> bool {
    report.config.promise.is_some()
}

/// What is promised after the rounds so far, and what that rests on, in the words of the model's metadata; nothing if the run is not
/// private.
pub(super) fn card(report: &Report<'_>, reader: Reader) -> Markup {
    let trained = report.rounds.iter().rfind(|record| !record.closing).map_or(0, |record| record.round);
    let Some(said) = report.config.privacy_after(trained) else { return html! {} };
    html! {
        section.card {
            h2 { "Privacy" }
            p { "Differential privacy of devices: " (said) "." }
            @if let Some(budget) = report.config.promise.and_then(|promise| promise.budget) {
                p.note { "Training ends before the round that would exceed epsilon " (budget) "." }
            }
            p.note {
                "That is said of the models. Numbers of devices and means over them stand here without noise"
                @match reader {
                    Reader::Anyone => ", and nothing of single devices does.",
                    Reader::Operator => ", and the table of devices has what the operator has to know of each: keep this page in the lab.",
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::{config, report, run};
    use super::*;
    use crate::attack::{Attack, Attackers};
    use crate::report::devices::{DeviceRow, Devices, Trouble};
    use crate::report::html::{findings, render};
    use crate::round::RoundRecord;

    const PRIVATE: [&str; 5] = [
        "privacy.clip=1",
        "privacy.noise=1",
        "privacy.epsilon=50",
        "aggregation.weights=uniform",
        "data.clients=12",
    ];

    #[test]
    fn a_page_says_what_is_promised_and_what_that_rests_on() {
        let rounds = run(3, 12);
        let closing = RoundRecord { round: 4, closing: true, ..rounds[2].clone() };
        let rounds = [rounds, vec![closing]].concat();
        let private = config(&PRIVATE);
        for page in [
            render(&report(&private, &rounds)),
            findings(&report(&private, &rounds), Reader::Operator).into_string(),
        ] {
            for part in [
                "<h2>Privacy</h2>",
                "epsilon ",
                " at delta 1e-6 after 3 rounds, for one device more or less",
                "updates clipped to 1, noise 1",
                "the server is trusted, and who can take part does not depend on the data",
                "ends before the round that would exceed epsilon 50.",
            ] {
                assert!(page.contains(part), "{part:?} is not in: {page}");
            }
        }
        let repeated = config(&[&PRIVATE[..], &["simulation.reproducible-noise=true"]].concat());
        assert!(
            render(&report(&repeated, &rounds))
                .contains("devices: none, since the noise comes from run.seed")
        );
        assert!(!render(&report(&config(&[]), &rounds)).contains("<h2>Privacy</h2>"));
    }

    /// A page with all that is known of single clients: their labels, their tests, what each has done, and who attacks.
    fn with_everything(overrides: &[&str], reader: Reader) -> (String, Vec<String>) {
        let mut config = config(overrides);
        config.attackers = Some(Attackers { attack: Attack::SignFlip {}, share: 0.2 });
        let ids: Vec<_> = (0..12).map(|index| config.client(index)).collect();
        let mut rounds = run(3, 12);
        let found = || BTreeMap::from([("own-accuracy".to_owned(), 0.5)]);
        rounds[2].clients = ids.iter().map(|id| (*id, found())).collect();
        let row = |(device, samples)| DeviceRow {
            device,
            name: Some("attic".to_owned()),
            rounds: 3,
            accepted: 2,
            rejected: 1,
            late: 0,
            failed: 0,
            not_now: 0,
            trouble: Some(Trouble {
                round: 2,
                verdict: "rejected".to_owned(),
                reason: "too long".to_owned(),
            }),
            seconds: Some(1.5),
            bytes: None,
            own_accuracy: Some((0.75, 3)),
            samples: Some(samples),
            software: None,
            heard: None,
        };
        let devices = Devices { at: 100_000, devices: ids.iter().copied().zip(70_001..).map(row).collect() };
        let histograms: Vec<_> =
            (0..12).map(|index| (format!("client {index}"), vec![80_001 + index, 90_001 + index])).collect();
        let report =
            Report { histograms: Some(&histograms), devices: Some(&devices), ..report(&config, &rounds) };
        let page = match reader {
            Reader::Anyone => render(&report),
            Reader::Operator => findings(&report, reader).into_string(),
        };
        // Numbers with and without a separator.
        let numbers =
            [70_001, 80_001, 90_001, 170_002].map(|first: u32| (first..first + 12).collect::<Vec<_>>());
        let numbers = numbers
            .concat()
            .into_iter()
            .flat_map(|number| [number.to_string(), format!("{},{:03}", number / 1000, number % 1000)]);
        let names = ids.iter().flat_map(|id| [id.to_string(), id.short()]);
        let words = ["client 0", "client 11", "attic", "too long", "own tests", "75.0 %"].map(str::to_owned);
        (page, numbers.chain(names).chain(words).collect())
    }

    #[test]
    fn a_private_page_has_nothing_of_single_clients() {
        let (private, telling) = with_everything(&PRIVATE, Reader::Anyone);
        let found: Vec<_> = telling.iter().filter(|part| private.contains(*part)).collect();
        assert!(found.is_empty(), "{found:?} in: {private}");
        assert!(private.contains("12 devices answered in rounds of this run"), "{private}");
        assert!(private.contains("sign flip by 2 of 12 clients"), "{private}");
        let (open, telling) = with_everything(&["data.clients=12"], Reader::Anyone);
        let found = telling.iter().filter(|part| open.contains(*part)).count();
        assert!(found > 40, "{found} of {} are on a page that may have them", telling.len());
        for part in ["client 0", "client 11", "attic", "own tests", "80001", "70,001", "75.0 %"] {
            assert!(open.contains(part), "{part:?} is not in: {open}");
        }
        let (page, _) = with_everything(&PRIVATE, Reader::Operator);
        assert!(page.contains("attic") && page.contains("too long"), "the operator sees troubles");
        assert!(!page.contains("client 0") && !page.contains("own tests"), "{page}");
    }
}
