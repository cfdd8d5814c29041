//! Samples that are read as the run says, and the memory that they take.

use shared::memory::estimate;
use shared::spec::Reading;

use super::*;
use crate::allowance::Allowance;

/// Notes how long a task may be.
#[derive(Clone)]
struct Limited(Attempts, Arc<Mutex<Option<u64>>>);

impl Connector for Limited {
    async fn connect(&mut self, pass: Pass) -> Result<Channel, ConnectError> {
        self.0.connect(pass).await
    }

    fn limit_tasks(&mut self, bytes: u64) {
        *self.1.lock().unwrap() = Some(bytes);
    }
}

fn samples() -> DeviceSamples {
    DeviceSamples { data: data(), skipped: 0, tests: TestSamples::none(), trainer: None }
}

#[tokio::test]
async fn what_the_process_takes_with_its_samples_counts_against_the_bound() {
    let (first, mut server) = connection();
    let (second, mut again) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(hello) if hello.asks()));
        server.says(ToClient::Samples { reading: Reading::of(&spec()).to_text() });
        assert!(matches!(again.message().await, ToServer::Hello(hello) if hello.samples == 2));
        again.welcomes(None);
        let ToServer::Declined { reason } = again.message().await else { panic!("before any task") };
        assert!(reason.contains("--max-memory"), "{reason}");
        drop(again);
    };
    // Enough for the run alone.
    let bytes = estimate(&spec(), 2).unwrap().total();
    let participant = Participant {
        samples: Source::AsTheRunSays(Arc::new(|_: &Reading| Ok::<_, Failure>(samples()))),
        memory: Some(Allowance { bytes, used: 0, named: true }),
        ..participant()
    };
    let limit = Arc::default();
    let connector = Limited(Attempts::new([Ok(first), Ok(second)]), Arc::clone(&limit));
    let (_stop, stopped) = watch::channel(false);
    let mut notice = |_: Notice| ();
    let takes_part = Box::pin(take_part(participant, connector, Failing::default(), stopped, &mut notice));
    let (result, ()) = together(takes_part, served).await;
    assert!(matches!(result, Ok(SessionEnd::TooLarge(_))), "{result:?}");
    assert!(limit.lock().unwrap().is_some_and(|limit| limit < bytes), "and no task comes that has no room");
}

#[tokio::test]
async fn samples_of_one_run_are_dropped_before_those_of_the_next_are_read() {
    let participant = Participant {
        samples: Source::AsTheRunSays(Arc::new(|_: &Reading| Ok::<_, Failure>(samples()))),
        ..participant()
    };
    let session = Session::new(DeviceProfile::asking(participant.client), None, Duration::ZERO);
    let (finished, _) = unbounded_channel();
    let mut notice = |_| ();
    let (connector, training) = (Attempts::new([]), Training::new(finished));
    let mut driver = Driver::new(participant, session, connector, Failing::default(), training, &mut notice);
    driver.samples_read(Ok(samples()));
    assert!(driver.samples.is_some());
    driver.read(Reading::of(&spec()));
    assert!(driver.samples.is_none());
}
