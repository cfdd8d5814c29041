//! Short rows of the table of faults, by real processes. `federation-lab faults` tries all of them, and takes many minutes.

use federation_tests::fault_run::run;
use federation_tests::fault_table::{Holds, ROWS, SHORT_DISK, SHORT_NETWORK};
use federation_tests::namespaces::{again_inside, inside};
use federation_tests::programs::programs;
use shared::congestion::Congestion;

/// Whether this process is where rows can be run. If not, the test of this name is run again there.
fn inside_of(name: &str) -> bool {
    // Built where there is a network.
    let _ = programs();
    if inside() {
        return true;
    }
    match again_inside(["--exact", &format!("fault_table::{name}"), "--nocapture"]) {
        Ok(code) => assert_eq!(code, 0, "it failed in its namespace"),
        Err(why) => println!("skipped: namespaces are not permitted here ({})", why.0),
    }
    false
}

#[test]
fn a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one() {
    if inside_of("a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one") {
        for congestion in [Congestion::Cubic, Congestion::Bbr] {
            let outcome = run(&SHORT_NETWORK, 3, congestion);
            assert_eq!(outcome.moves, 1, "the device came from another address: {outcome:?}");
        }
    }
}

#[test]
fn so_does_a_run_whose_disks_are_full_or_read_only_and_whose_processes_are_killed() {
    if inside_of("so_does_a_run_whose_disks_are_full_or_read_only_and_whose_processes_are_killed") {
        let _ = run(&SHORT_DISK, SHORT_DISK.faults.len() + 1, Congestion::Cubic);
    }
}

#[test]
fn what_cannot_go_on_is_told() {
    if inside_of("what_cannot_go_on_is_told") {
        for row in ROWS.iter().filter(|row| matches!(row.holds, Holds::Told(_))) {
            let _ = run(row, 3, Congestion::Cubic);
        }
    }
}
