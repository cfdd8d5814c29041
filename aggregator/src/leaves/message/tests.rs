//! The bytes of every message: a server of the version before must go on to understand them.

use serde::de::DeserializeOwned;
use shared::by_class::ByClass;
use shared::message::TrainReport;

use super::*;

/// A message, and its bytes in hexadecimal digits.
type Golden<M> = (M, &'static str);

fn client() -> ClientId {
    ClientId::from_bytes([7; 16])
}

fn header() -> UpdateHeader {
    UpdateHeader { round: 3, report: TrainReport { samples: 5, loss: 0.5, ..TrainReport::default() } }
}

fn agreement() -> Agreement {
    Agreement { attempt: 2, sealed: [(client(), [].into())].into(), ..Agreement::default() }
}

fn to_leaf() -> Vec<Golden<ToLeaf>> {
    vec![
        (ToLeaf::Welcome { run: RunId::from_bytes([9; 8]) }, "000909090909090909"),
        (
            ToLeaf::Open {
                round: 3,
                opening: "{}".into(),
                failed: 1,
                clip: Some(0.5),
                agreement: Some(Box::new(agreement())),
                digest: Some([4; 32]),
                differences: vec![300],
            },
            "0103027b7d0101000000000000e03f0102000001070707070707070707070707070707070001040404040404040404040404040404040404040404040404040404040404040401ac02",
        ),
        (
            ToLeaf::Agreed { round: 3, agreement: Box::new(agreement()) },
            "0203020000010707070707070707070707070707070700",
        ),
        (
            ToLeaf::Accept { round: 3, uploads: vec![(client(), 300)] },
            "03030107070707070707070707070707070707ac02",
        ),
        (ToLeaf::Sum { round: 3, clients: vec![client()] }, "04030107070707070707070707070707070707"),
        (ToLeaf::Fetch { round: 3, client: client() }, "050307070707070707070707070707070707"),
        (ToLeaf::Closed { round: 3 }, "0603"),
        (ToLeaf::Discard { number: 300 }, "07ac02"),
        (ToLeaf::Message { peer: 300, message: ToClient::Finished { rounds: 3 } }, "08ac020403"),
        (ToLeaf::Task { peer: 300, round: 3, differences: 2 }, "09ac020302"),
        (ToLeaf::Frozen { peer: 300, digest: "d".to_owned() }, "0aac020164"),
        (ToLeaf::Disconnect { peer: 300 }, "0bac02"),
        (ToLeaf::Refused { why: "why".to_owned() }, "0c03776879"),
        (ToLeaf::Shown { text: "{}".to_owned() }, "0d027b7d"),
    ]
}

fn to_root() -> Vec<Golden<ToRoot>> {
    let held = HeldUpdate { client: client(), header: header(), tested: ByClass::default(), bytes: 300 };
    vec![
        (
            ToRoot::Hello {
                leaf: "a:1".to_owned(),
                epoch: 300,
                version: "1".to_owned(),
                part: Some(Part { number: 1, of: 3 }),
            },
            "0003613a31d8040131010103",
        ),
        (
            ToRoot::Opened { round: 3, held: vec![held.clone()] },
            "01030107070707070707070707070707070707030500000000000000e03f000000000000000000000000000000ac02",
        ),
        (
            ToRoot::Accepted {
                round: 3,
                outcomes: vec![None, Some(Err(Rejection::Diverged)), Some(Ok(held))],
            },
            "02030300010108010007070707070707070707070707070707030500000000000000e03f000000000000000000000000000000ac02",
        ),
        (ToRoot::Summed { round: 3 }, "0303"),
        (ToRoot::Lacks { round: 3 }, "0403"),
        (ToRoot::Fetched { round: 3, client: client() }, "050307070707070707070707070707070707"),
        (ToRoot::Connected { peer: 300 }, "06ac02"),
        (ToRoot::Message { peer: 300, message: ToServer::Goodbye, bytes: 300 }, "07ac0204ac02"),
        (
            ToRoot::Uploaded { peer: 300, header: header(), number: 2, bytes: 300 },
            "08ac02030500000000000000e03f000000000000000000000000000002ac02",
        ),
        (ToRoot::Waits { peer: 300 }, "09ac02"),
        (ToRoot::CutOff { client: client() }, "0a07070707070707070707070707070707"),
        (ToRoot::Revoked { client: client() }, "0b07070707070707070707070707070707"),
        (ToRoot::Disconnected { peer: 300, reason: "why".to_owned(), parted: true }, "0cac020377687901"),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keep<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(all: Vec<Golden<M>>) {
    for (message, golden) in all {
        let bytes = postcard::to_stdvec(&message).expect("it is a message");
        assert_eq!(hex(&bytes), golden, "{message:?}");
        assert_eq!(postcard::from_bytes::<M>(&bytes).expect("the bytes of a message"), message);
    }
}

#[test]
fn messages_keep_their_bytes() {
    keep(to_leaf());
    keep(to_root());
}
