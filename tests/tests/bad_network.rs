//! Real processes over a bad network. `federation-lab bad-network` tries more, and takes minutes.

use federation_tests::bad_network::{BadNetwork, run};
use federation_tests::namespaces::{again_inside, inside};
use federation_tests::programs::programs;
use shared::congestion::Congestion;

#[test]
fn a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one() {
    // Built where there is a network.
    let _ = programs();
    if inside() {
        for congestion in [Congestion::Cubic, Congestion::Bbr] {
            let outcome = run(&BadNetwork::SHORT, 3, congestion);
            assert_eq!(outcome.moves, 1, "the device came from another address: {outcome:?}");
        }
        return;
    }
    let name = "bad_network::a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one";
    match again_inside(["--exact", name, "--nocapture"]) {
        Ok(code) => assert_eq!(code, 0, "it failed in its namespace"),
        Err(why) => println!("skipped: network namespaces are not permitted here ({})", why.0),
    }
}
