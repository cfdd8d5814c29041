//! Figures of runs that this server serves with others. What the server that leads has of a run is there alone.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

use super::{OfRun, Value};
use crate::leaves::shown::Together;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AtServer {
    run: String,
    server: String,
}

pub(super) fn add(registry: &mut Registry, all: &[Together], now: i64) {
    let devices = Family::<AtServer, Value>::default();
    let leads = Family::<AtServer, Value>::default();
    let heard = Family::<OfRun, Value>::default();
    for together in all {
        let Together { run, shown } = together;
        let seconds = (now - shown.told).max(0) as f64 / 1e3;
        heard.get_or_create(&OfRun { run: run.clone() }).set(seconds);
        // What is old may be otherwise by now, and others say so.
        for server in shown.servers.iter().filter(|_| together.is_new(now)) {
            let at = AtServer { run: run.clone(), server: server.address.clone() };
            devices.get_or_create(&at).set(server.devices as f64);
            leads.get_or_create(&at).set(f64::from(u8::from(server.address == shown.leads)));
        }
    }
    registry.register(
        "server_devices",
        "Devices that are connected to each server of a run that several serve",
        devices,
    );
    registry.register("server_leads", "1 for the server that leads a run that several serve", leads);
    registry.register_with_unit(
        "leader_heard",
        "Time since the server that leads a run was heard here: it tells how the run stands every second",
        Unit::Seconds,
        heard,
    );
}
