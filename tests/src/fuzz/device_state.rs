//! Files of a device's state directory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use edge_client::masking::State;
use edge_client::store::{DiskStore, KnownServer, ServerFile, Store as _, StoreError, Update};
use flate2::Crc;
use models::{Architecture, Layer};
use shared::id::RunId;
use shared::message::{TaskId, TrainReport, Verdict};
use shared::personalisation::Personal;
use shared::personalisation::{Gate, LocalSplit, Method, Mix, PersonalModel};
use shared::seed::Seed;
use shared::spec::RunSpec;
use shared::ticket::{Ticket, TicketSecret};

use super::{Seen, tmp};
use crate::keys::device_key;

const RUN: RunId = RunId::from_bytes([3; 8]);
const HELD: TaskId = TaskId { run: RUN, round: 2 };

/// The files of a device that holds an update, by their names in the state directory.
fn whole() -> &'static [(PathBuf, Vec<u8>)] {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = tempfile::tempdir().expect("the system has a place for temporary files");
        let report = TrainReport {
            samples: 300,
            steps: 5,
            loss: 0.5,
            duration: Duration::new(2, 7),
            metrics: [None; 12],
        };
        let mut store = DiskStore::open(folder.path()).expect("a new directory");
        let earlier = TaskId { round: 1, ..HELD };
        for held in [earlier, HELD] {
            let (payload, local) = (b"payload"[..].into(), Some(b"local".to_vec()));
            store.save(&Update { id: held, report, payload, local }).expect("there is room");
            if held == earlier {
                store.forget(Some(&Verdict::Accepted)).expect("it is there");
            }
        }
        store.keep_masking(RUN, b"masking").expect("there is room");
        drop(store);
        let mut files = tmp::files(folder.path());
        for (path, bytes) in &mut files {
            if path.ends_with("identity") {
                // The same in every process: the corpus begins with it.
                *bytes = format!("{}\n", device_key(0).digits()).into_bytes();
            }
            *path = path.strip_prefix(folder.path()).expect("it lies there").to_owned();
        }
        files
    })
}

/// With the right checksum where a file has one: any program that writes files can compute it.
fn summed(mut file: Vec<u8>) -> Vec<u8> {
    if file.len() >= 20 {
        let mut crc = Crc::new();
        crc.update(&file[..16]);
        crc.update(&file[20..]);
        file[16..20].copy_from_slice(&crc.sum().to_le_bytes());
    }
    file
}

/// The first byte says which file of a state directory the others are, and whether its checksum is made right.
///
/// # Panics
/// If a directory that opens cannot be used, or keeps something else than it was given.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    let folder = tmp::folder();
    let whole = whole();
    let chosen = usize::from(first >> 1) % whole.len();
    for (place, (path, right)) in whole.iter().enumerate() {
        let envelope = ["update", "local", "masking"].iter().any(|name| path.ends_with(name));
        let content = match place == chosen {
            true if first & 1 == 1 && envelope => summed(content.to_vec()),
            true => content.to_vec(),
            false => right.clone(),
        };
        tmp::write(&folder.join(path), &content);
    }
    Seen::of(&used(&folder).map_err(|error| format!("{error:?}").split('{').next().map(str::to_owned)))
}

fn used(folder: &Path) -> Result<(bool, bool), StoreError> {
    let mut store = DiskStore::open(folder)?;
    let held = store.pending()?;
    match (held, store.payload()) {
        (None, payload) => assert!(matches!(payload, Err(StoreError::NothingHeld))),
        (Some(_), payload) => drop(payload?),
    }
    let local = store.client_state(RUN);
    if let Some(masking) = store.masking(RUN)?
        && let Some(state) = State::from_bytes(&masking)
    {
        assert_eq!(State::from_bytes(&state.to_bytes()), Some(state));
    }
    let report = TrainReport::default();
    let (payload, local_state) = (b"another"[..].into(), Some(b"state".to_vec()));
    store.save(&Update { id: HELD, report, payload, local: local_state })?;
    assert_eq!(store.payload()?, b"another"[..].into());
    assert_eq!(store.client_state(RUN)?.as_deref(), Some(&b"state"[..]));
    drop(store);
    let mut store = DiskStore::open(folder)?;
    assert_eq!((store.pending()?, store.payload()?), (Some((HELD, report)), b"another"[..].into()));
    store.forget(Some(&Verdict::Accepted))?;
    assert_eq!((store.pending()?, store.client_state(RUN)?.as_deref()), (None, Some(&b"state"[..])));
    Ok((held.is_some(), local?.is_some()))
}

/// Each file as it is, with and without a checksum made right.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |(place, (_, content)): (usize, &(PathBuf, Vec<u8>))| {
        [0, 1].map(|sum| [&[(place as u8) << 1 | sum][..], content].concat())
    };
    whole().iter().enumerate().flat_map(seed).collect()
}

/// The file with the server that a device belongs to.
///
/// # Panics
/// If what is loaded cannot be saved.
#[must_use]
pub fn server(bytes: &[u8]) -> Seen {
    let path = tmp::file("server", bytes);
    let file = ServerFile::of(path.parent().expect("it is in a folder"));
    let loaded = file.load();
    if let Ok(Some(known)) = &loaded {
        let secret = known.secret();
        file.save(known).expect("there is room");
        assert_eq!(file.load().expect("just written").as_ref(), Some(known));
        file.save(&known.clone().redeemed().renewed(device_key(2).public())).expect("there is room");
        assert!(file.load().expect("just written").is_some());
        return Seen::of(&secret.is_some());
    }
    Seen::of(&loaded.is_ok())
}

/// Before and after a ticket was taken.
#[must_use]
pub fn servers() -> Vec<Vec<u8>> {
    let ticket = Ticket {
        server: device_key(0).public(),
        secret: TicketSecret::from_bytes(*b"sixteen  letters"),
        addresses: vec!["lab:4433".to_owned()],
    };
    let known = KnownServer::from(ticket);
    let renewed = known.clone().redeemed().renewed(device_key(1).public());
    let bytes = |known| {
        let folder = tmp::folder();
        let file = ServerFile::of(&folder);
        file.save(known).expect("there is room");
        std::fs::read(file.path()).expect("just written")
    };
    let told = renewed.clone().noting(vec!["vpn:4433".to_owned()], Some("vpn:4433".to_owned()));
    vec![bytes(&known), bytes(&renewed), bytes(&told)]
}

/// A personal model.
///
/// # Panics
/// If what is read is written differently.
#[must_use]
pub fn personal(bytes: &[u8]) -> Seen {
    let read = Personal::from_bytes(bytes);
    if let Ok(personal) = &read {
        let again = Personal::from_bytes(&personal.to_bytes()).expect("what is written is read");
        assert_eq!(&again, personal);
    }
    Seen::result(&read)
}

/// One of each method.
#[must_use]
pub fn personals() -> Vec<Vec<u8>> {
    Method::ALL.map(|method| example(method).to_bytes()).into()
}

fn example(method: Method) -> Personal {
    let linear = Architecture::by_name("linear", &[1, 2, 2], 2).expect("linear fits every input");
    let extractor = vec![Layer::Flatten, Layer::Linear { name: "a".into(), out: 3, bias: true }];
    let architecture = Architecture { extractor, ..linear };
    let global =
        architecture.initialise(|tensor| Seed::root(4).derive(tensor).rng()).expect("a valid network");
    let local = if method.is_whole() { global.clone() } else { global.select("head.") };
    let gate = match method {
        Method::Mf => Some(Gate::of(&[0.5, -1.0, 0.25, 2.0], 0.0)),
        Method::Mfe => Some(Gate::of(&[0.5, -1.0, 0.25], 0.125)),
        Method::Ft | Method::Fb | Method::Fixed => None,
    };
    Personal {
        model: PersonalModel { method, mix: Mix::Logits, architecture, global, local, gate },
        samples: RunSpec::example("fedavg").data,
        run: RUN,
        name: "a run".to_owned(),
        round: 7,
        split: LocalSplit { expert: vec![0, 3, 5], gate: vec![1] },
        held_out: vec![2, 4],
    }
}
