//! Messages to the operator: faults of the database that servers share, and two servers with the same address.
#![cfg(unix)]

use std::fs;

use aggregator::cluster::address::StoreAddress;
use aggregator::cluster::connection::Connection;
use aggregator::cluster::error::StoreError;
use federation_tests::cluster_testbed::ClusterTestbed;
use federation_tests::postgres::Postgres;
use federation_tests::process::{Process, run, until};
use federation_tests::programs::programs;

#[test]
fn a_database_that_can_only_be_read_is_named_and_the_run_goes_on_when_it_can_be_written() {
    let Some(lab) = ClusterTestbed::new(2, 2, &["run.rounds=200", "data.max-samples=200"]) else { return };
    // Under a name that is for servers alone.
    let peer = |server: usize| lab.address(server).replace("127.0.0.1", "localhost");
    let start = |server: usize| {
        let mut command = lab.serve_command(server);
        Process::start(&format!("server {server}"), command.args(["--peer-address", &peer(server)]))
    };
    let (mut servers, devices) = ([0, 1].map(start), [0, 1].map(|device| lab.join(device)));
    until("a round has closed", || lab.closed() > Some(0));
    let mut client = lab.postgres.client();
    client.batch_execute("SET default_transaction_read_only = off").expect("a setting");
    let mut only_reads = |yes: &str| {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {yes}");
        client.batch_execute(&set).and_then(|()| client.batch_execute("SELECT pg_reload_conf()")).expect(yes);
    };
    only_reads("on");
    for server in &mut servers {
        let told = |line: &str| line.contains("it can only be read") && line.contains("rounds pause");
        server.line("the fault and what to do", told);
    }
    until("the server that leads says that it pauses", || {
        [0, 1].iter().any(|server| lab.status(*server).text.contains("PAUSED until the database says"))
    });
    only_reads("off");
    for server in &mut servers {
        server.line("the end of the fault", |line| line.contains("the store is back: rounds go on"));
    }
    lab.assert_completed(servers.into(), devices.into());
}

/// A server that says that it is reached where the second one is.
fn as_second(lab: &ClusterTestbed, server: usize) -> Process {
    let mut command = lab.serve_command(server);
    let mut process =
        Process::start(&format!("server {server}"), command.args(["--peer-address", &lab.address(1)]));
    process.line("listening", |line| line.contains("listening on "));
    process
}

#[test]
fn of_two_servers_with_one_address_the_first_ends_and_says_so() {
    let Some(lab) = ClusterTestbed::new(3, 2, &[]) else { return };
    let leads = lab.serve(0);
    until("it leads", || lab.root().is_some());
    let first = as_second(&lab, 1);
    until("it is linked", || lab.status(0).text.contains(&lab.address(1)));
    let second = as_second(&lab, 2);
    let ended = first.wait();
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert!(ended.text.contains("another process has connected as this server"), "{}", ended.text);
    second.kill();
    leads.kill();
}

#[test]
fn two_servers_that_take_the_lead_from_each_other_do_not_go_on_so() {
    let Some(lab) = ClusterTestbed::new(3, 2, &[]) else { return };
    let first = as_second(&lab, 1);
    until("it leads", || lab.root().is_some());
    let mut both = vec![first, as_second(&lab, 2)];
    let mut ended = None;
    until("one has ended", || {
        ended = both.iter_mut().position(|server| !server.alive());
        ended.is_some()
    });
    let ended = both.remove(ended.expect("it has")).wait();
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert!(ended.text.contains("the two take the lead from each other"), "{}", ended.text);
    both.remove(0).kill();
}

#[test]
fn what_several_servers_do_not_serve_is_refused_with_the_keys_that_ask_for_it() {
    for (settings, named) in [
        (&["aggregation.rule.median={}", "aggregation.weights=uniform"][..], "aggregation.rule"),
        (&["algorithm.fafi={}"], "algorithm"),
        (&["algorithm.fedmatch.lambda-l2=0.001", "data.labelled=100"], "algorithm"),
    ] {
        // It is said before the store is asked.
        let mut words = vec!["serve", "--store", "postgres://lab@127.0.0.1:1/none"];
        words.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let ended = run(&programs().aggregator, &words);
        assert_eq!(ended.code, Some(2), "{settings:?}: {}", ended.text);
        let expected = ended.text.contains("several servers do not serve") && ended.text.contains(named);
        assert!(expected, "{settings:?}: {}", ended.text);
    }
}

/// What is in the way of making the tables there.
fn refused(address: &str) -> String {
    let prepared = Connection::new(StoreAddress::from_environment(address).expect("an address")).prepare();
    let error: StoreError = prepared.expect_err(address);
    assert!(!error.is_outage(), "{error}");
    error.to_string()
}

#[test]
fn a_user_with_a_password_and_a_schema_of_its_own_is_enough() {
    let rules = "host all lab 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let postgres = Postgres::with(&["listen_addresses=127.0.0.1"], |data| {
        fs::write(data.join("pg_hba.conf"), rules).expect("a file");
    });
    let Some(postgres) = postgres else { return };
    postgres
        .client()
        .batch_execute(
            "CREATE ROLE small LOGIN PASSWORD 'right';
             CREATE SCHEMA federation; GRANT USAGE, CREATE ON SCHEMA federation TO small;
             CREATE SCHEMA others; GRANT USAGE ON SCHEMA others TO small;
             CREATE SCHEMA taken; GRANT USAGE, CREATE ON SCHEMA taken TO small;
             CREATE TABLE taken.experiments (number integer); ALTER TABLE taken.experiments OWNER TO small",
        )
        .expect("statements");
    let address = |password: &str, schema: &str| {
        let own = postgres.address().replace("lab@", &format!("small:{password}@"));
        format!("{own}?options=-csearch_path%3D{schema}")
    };
    let mut connection =
        Connection::new(StoreAddress::from_environment(&address("right", "federation")).expect("an address"));
    connection.prepare().expect("it has all rights that are needed");
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'federation' AND tableowner = 'small'";
    let made: i64 = postgres.client().query_one(made, &[]).expect("a number").get(0);
    assert!(made > 5, "{made} tables");
    for (password, schema, advice) in [
        ("wrong", "federation", "set PGPASSWORD, or name another user"),
        ("right", "nowhere", "make it with CREATE SCHEMA, or name another search_path"),
        ("right", "others", "the user needs the right to make tables"),
        ("right", "taken", "give the aggregator a schema of its own"),
    ] {
        let told = refused(&address(password, schema));
        assert!(told.contains(advice) && !told.contains('\n'), "{schema}: {told}");
    }
}
