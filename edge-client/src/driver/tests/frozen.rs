//! Frozen parameters that come, and that do not.

use models::Frozen;
use models::architecture::encode_frozen;

use super::*;

/// A run that makes personal models and does not learn its extractor, and what that is.
fn frozen_run() -> (RunSpec, Bytes) {
    let (spec, _) = personal_run();
    let mut spec = RunSpec::clone(&spec);
    let whole = spec.architecture.initialise(|name| spec.root_seed().derive(name).rng()).unwrap();
    let mut architecture = spec.architecture.clone();
    architecture.frozen = Some(Frozen::named(vec!["extractor.*".to_owned()]));
    let (_, frozen) = architecture.divide(whole);
    let encoded = Bytes::from(encode_frozen(&frozen));
    spec.architecture = architecture.with_frozen(&encoded).unwrap();
    (spec, encoded)
}

#[tokio::test]
async fn a_run_that_ends_before_its_frozen_parameters_are_here_is_left_without_a_personal_model() {
    let (link, mut server) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(_)));
        let welcome = ToClient::Welcome { spec: SpecText::of(&frozen_run().0), wants: None };
        server.says(welcome);
        let payload = Bytes::new();
        server.incoming.send(Incoming::Task { round: 3, work: PERSONALISE, failed: 0, payload }).unwrap();
        assert!(matches!(server.message().await, ToServer::WantsFrozen { .. }));
        server.finishes();
    };
    let ((result, told), ()) =
        together(takes_part(Attempts::new([Ok(link)]), Failing::default()), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
    let reason = "before its frozen parameters were received";
    let failed = |notice: &&Notice| matches!(notice, Notice::Failed { round: 3, failure } if failure.reason.contains(reason));
    assert_eq!(told.iter().filter(failed).count(), 1, "{told:?}");
}

#[tokio::test]
async fn frozen_parameters_are_written_beside_the_driver_and_before_it_ends() {
    let (release, released) = std::sync::mpsc::channel();
    let kept = Arc::new(AtomicBool::new(false));
    let store = Failing { frozen: Mutex::new(Some((released, kept.clone()))), ..Failing::default() };
    let device = DeviceProfile::of(participant().client, &data(), 0);
    let mut session = Session::new(device, None, Duration::ZERO);
    let (spec, encoded) = frozen_run();
    session.handle(Duration::ZERO, Event::Connected);
    let welcome = ToClient::Welcome { spec: SpecText::of(&spec), wants: None };
    session.handle(Duration::ZERO, Event::Message(welcome));
    let (finished, _) = unbounded_channel();
    let mut notice = |_| ();
    let (connector, training) = (Attempts::new([]), Training::new(finished));
    let mut driver = Driver::new(participant(), session, connector, store, training, &mut notice);
    // No task waits for them. Written here, they would never be released.
    assert!(driver.frozen_received(&encoded).is_none());
    assert!(!kept.load(Ordering::SeqCst));
    let left = async {
        driver.shut_down().await;
        kept.load(Ordering::SeqCst)
    };
    let (kept, ()) = tokio::join!(left, async { release.send(()).unwrap() });
    assert!(kept);
}
