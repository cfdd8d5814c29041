//! Short rows of the table of faults, by real processes. `federation-lab faults` tries all of them, and takes many minutes.

use federation_tests::fault_run::run;
use federation_tests::fault_table::{Holds, ROWS, SHORT_DISK, SHORT_NETWORK};
use federation_tests::namespaces::inside_test;
use shared::congestion::Congestion;

#[test]
fn a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one() {
    if inside_test("fault_table::a_run_over_a_bad_network_ends_with_the_bytes_of_the_undisturbed_one") {
        for congestion in [Congestion::Cubic, Congestion::Bbr] {
            let outcome = run(&SHORT_NETWORK, 3, congestion);
            assert_eq!(outcome.moves, 1, "the device came from another address: {outcome:?}");
        }
    }
}

#[test]
fn so_does_a_run_whose_disks_are_full_or_read_only_and_whose_processes_are_killed() {
    if inside_test(
        "fault_table::so_does_a_run_whose_disks_are_full_or_read_only_and_whose_processes_are_killed",
    ) {
        let _ = run(&SHORT_DISK, SHORT_DISK.rounds(), Congestion::Cubic);
    }
}

#[test]
fn what_cannot_go_on_is_told() {
    if inside_test("fault_table::what_cannot_go_on_is_told") {
        for row in ROWS.iter().filter(|row| matches!(row.holds, Holds::Told(_))) {
            let _ = run(row, 3, Congestion::Cubic);
        }
    }
}
