//! The devices, and who may take part.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use maud::{Markup, html};
use qrcode::Color;
use shared::calendar::{moment, utc};
use shared::id::ClientId;

use super::super::access::Access;
use super::super::actions::MAX_HOURS;
use super::super::audit::Change;
use super::super::lab::{Lab, LabError};
use super::filter::Wanted;
use super::{Forms, Kept, Shown, Tab, ago, document};
use crate::database::Database;
use crate::enrolment::{Device, IssuedTicket, Standing};
use crate::issue::{MAX_USES, NewTicket, code};
use crate::names::called;
use crate::report::units::{bytes, counted, grouped, seconds};

/// Changes that are told, the newest.
const CHANGES: u32 = 20;
/// Devices on the page; there may be thousands, and open pages fetch them again whenever something changes.
const LISTED: usize = 150;

fn matches(wanted: &Wanted, device: &Device, now: i64) -> bool {
    let id = device.client.to_string();
    let more = [&device.name, &device.software, &device.address].map(Option::as_deref);
    wanted.is_in([&*id, device.presence(now)].into_iter().chain(more.into_iter().flatten()))
}

pub(in crate::dashboard) fn show(lab: &Lab, wanted: &Wanted) -> Result<Shown, LabError> {
    let Some(database) = lab.database()? else {
        let status = html! { section.card { p.empty {
            "No server was started here yet: " code { "aggregator serve" } " begins to know devices."
        } } };
        let title = "Devices".to_owned();
        return Ok(Shown { tab: Tab::Devices, title, lead: html! {}, status, rounds: html! {}, forms: None });
    };
    let now = moment(SystemTime::now());
    let devices = Device::all(&database)?;
    let totals = Totals::of(lab, &database)?;
    let tickets = IssuedTicket::good(&database, SystemTime::now())?;
    let changes = Change::newest(&database, CHANGES)?;
    let (waiting, revoked) =
        (of_standing(&devices, Standing::Waiting), of_standing(&devices, Standing::Revoked));
    let lead = html! {
        (counted(devices.len(), "device")) ", " (waiting) " of them waiting for approval, " (revoked) " revoked."
    };
    let known = devices.len();
    let mut listed: Vec<Device> = devices.into_iter().filter(|device| matches(wanted, device, now)).collect();
    let found = listed.len();
    // Those that the operator is to decide on are never left out. All keep their order, so that no button moves under a pointer.
    let mut others = LISTED.saturating_sub(of_standing(&listed, Standing::Waiting));
    let mut awaited = LISTED;
    listed.retain(|device| {
        let room = if device.standing == Standing::Waiting { &mut awaited } else { &mut others };
        let kept = *room > 0;
        *room = room.saturating_sub(1);
        kept
    });
    let status = html! {
        @if known > 0 { (wanted.form("/devices", "devices", "name, id, state or address")) }
        section.card {
            h2 { "Known devices" }
            @if known == 0 { p.empty { "No device was here yet: a ticket lets the first one in." } }
            @else if found == 0 { p.empty { "No device matches. " a href="/devices" { "All devices" } } }
            @else { (table(&listed, &totals, now)) }
            @if found > LISTED { p.note {
                "and " (counted(found - LISTED, "other")) ": show those that you look for, or list all with " code { "aggregator devices" }
            } }
        }
    };
    let rounds = html! { (good_tickets(&tickets, now)) (record(&changes)) };
    let forms = forms(listed);
    Ok(Shown { tab: Tab::Devices, title: "Devices".to_owned(), lead, status, rounds, forms: Some(forms) })
}

fn of_standing(devices: &[Device], standing: Standing) -> usize {
    devices.iter().filter(|device| device.standing == standing).count()
}

/// What a device has done in all runs together.
#[derive(Clone, Debug, Default)]
struct Totals {
    rounds: u64,
    accepted: u64,
    rejected: u64,
    /// Seconds of training of its accepted updates, as it says.
    seconds: f64,
    /// Bytes of these updates.
    bytes: f64,
    left_out: u64,
}

impl Totals {
    /// Of every device that a run here knows.
    fn of(lab: &Lab, database: &Database) -> Result<BTreeMap<ClientId, Self>, LabError> {
        let mut all: BTreeMap<ClientId, Self> = BTreeMap::new();
        for run in lab.all()?.0 {
            for row in run.found.devices() {
                let of = all.entry(row.device).or_default();
                of.rounds += u64::from(row.rounds);
                of.accepted += u64::from(row.accepted);
                of.rejected += u64::from(row.rejected);
                of.seconds += row.seconds.unwrap_or(0.0);
                of.bytes += row.bytes.unwrap_or(0.0);
            }
            for left_out in database.left_out(&run.overview.id.to_string())? {
                if let Ok(device) = left_out.device.parse() {
                    let of = all.entry(device).or_default();
                    of.left_out = of.left_out.max(left_out.samples);
                }
            }
        }
        Ok(all)
    }

    fn mean_seconds(&self) -> Option<f64> {
        (self.accepted > 0 && self.seconds > 0.0).then(|| self.seconds / self.accepted as f64)
    }
}

fn table(devices: &[Device], totals: &BTreeMap<ClientId, Totals>, now: i64) -> Markup {
    let none = Totals::default();
    html! {
        div.scroll {
            table {
                thead { tr {
                    th.text scope="col" { "device" } th.text scope="col" { "state" } th scope="col" { "last here" }
                    th.text scope="col" { "software" } th.text scope="col" { "from" } th scope="col" { "samples" }
                    th scope="col" { "left out" } th scope="col" { "rounds" } th scope="col" { "accepted" } th scope="col" { "rejected" }
                    th scope="col" { "mean training" } th scope="col" { "sent" }
                } }
                tbody { @for device in devices {
                    @let of = totals.get(&device.client).unwrap_or(&none);
                    @let presence = device.presence(now);
                    tr {
                        th.text scope="row" { (called(device.client)) }
                        td.text { span.state data-state=(presence) {
                            @if device.standing == Standing::Waiting { "waits for approval" } @else { (presence) }
                        } }
                        td { (ago(device.seen, now)) }
                        td.text { (device.software.as_deref().unwrap_or("-")) }
                        td.text { (device.address.as_deref().unwrap_or("-")) }
                        td { (device.samples.map_or_else(|| "-".to_owned(), |samples| grouped(samples.max(0) as usize))) }
                        td { (grouped(of.left_out as usize)) }
                        td { (grouped(of.rounds as usize)) }
                        td { (grouped(of.accepted as usize)) }
                        td { (grouped(of.rejected as usize)) }
                        td { (of.mean_seconds().map_or_else(|| "-".to_owned(), seconds)) }
                        td { (bytes(of.bytes as u64)) }
                    }
                } }
            }
        }
    }
}

/// What can be changed. It is drawn when the page is loaded, so that nothing moves under a pointer.
fn forms(devices: Vec<Device>) -> Forms {
    Box::new(move |form| {
        html! {
            section.card {
                h2 { "Let devices in" }
                form.line method="post" action="/tickets" {
                    input type="hidden" name="form" value=(form);
                    label { "A ticket for " input type="number" name="uses" value="1" min="1" max=(MAX_USES) required; " devices" }
                    label { " and " input type="number" name="hours" value="24" min="1" max=(MAX_HOURS) required; " hours" }
                    button type="submit" { "Make ticket" }
                }
                @if !devices.is_empty() {
                    h2 { "Change a device" }
                    div.scroll { table.changes { tbody { @for device in &devices { (row(device, form)) } } } }
                }
            }
        }
    })
}

fn row(device: &Device, form: &str) -> Markup {
    let name = called(device.client);
    let act = |action: &str, says: &str| {
        html! { button type="submit" name="action" value=(action) aria-label=(format!("{says} {name}")) { (says) } }
    };
    let hidden = html! {
        input type="hidden" name="form" value=(form);
        input type="hidden" name="device" value=(device.client);
    };
    html! {
        tr {
            th.text scope="row" { (name) }
            td.text { form.line method="post" action="/devices" {
                (hidden)
                @if device.standing != Standing::In { (act("approve", "Approve")) }
                @if device.standing != Standing::Revoked { (act("revoke", "Revoke")) }
                (act("remove", "Remove"))
            } }
            td.text { form.line method="post" action="/devices" {
                (hidden)
                input type="hidden" name="action" value="name";
                input type="text" name="name" maxlength="60" value=(device.name.as_deref().unwrap_or("")) aria-label=(format!("name of {name}"));
                button type="submit" aria-label=(format!("Name {name}")) { "Name" }
            } }
        }
    }
}

fn good_tickets(tickets: &[IssuedTicket], now: i64) -> Markup {
    html! {
        @if !tickets.is_empty() {
            section.card {
                h2 { "Tickets that still let a device in" }
                ul { @for ticket in tickets {
                    li {
                        "Ticket " (ticket.number) ": " (ticket.left) " of " (counted(ticket.uses as usize, "device")) ", for another "
                        (seconds((ticket.expires - now).max(0) as f64 / 1e3))
                    }
                } }
            }
        }
    }
}

fn record(changes: &[Change]) -> Markup {
    html! {
        @if !changes.is_empty() {
            section.card {
                h2 { "Changes from this page" }
                ul.events { @for change in changes {
                    li { time datetime=(utc(change.at)) { (utc(change.at)) } " " (change.who) ": " (change.what) }
                } }
            }
        }
    }
}

/// The page with a new ticket, which is shown once.
pub(in crate::dashboard) fn ticket(made: &NewTicket, access: &Access) -> Markup {
    let text = made.ticket.to_string();
    let body = html! {
        section.card {
            p { "It is shown now and never again. On each device:" }
            pre.ticket { code { "edge-client join " (text) " --data DIR" } }
            @if let Some(code) = code(&made.ticket) { (drawn(&code)) }
            p.note {
                "It lets " (counted(made.issued.uses as usize, "device")) " in until " (utc(made.issued.expires)) ", at "
                (made.ticket.addresses.join(" or ")) "."
            }
            p { a href="/devices" { "Back to the devices" } }
        }
    };
    let kept = Kept { tab: Some(Tab::Devices), reloads: false };
    document(kept, &format!("Ticket {}", made.issued.number), &html! {}, &body, access)
}

/// A code for a camera: dark on light in both colour schemes.
fn drawn(code: &qrcode::QrCode) -> Markup {
    let side = code.width();
    let mut path = String::new();
    for (at, colour) in code.to_colors().into_iter().enumerate() {
        if colour == Color::Dark {
            let _ = write!(path, "M{} {}h1v1h-1z", at % side + 4, at / side + 4);
        }
    }
    let size = side + 8;
    html! {
        svg.code role="img" aria-label="The ticket as a code for a camera" viewBox=(format!("0 0 {size} {size}")) width="280" height="280" {
            rect.light width=(size) height=(size) {}
            path.dark d=(path) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::identity::PublicKey;

    use super::*;

    #[test]
    fn of_thousands_of_devices_those_that_wait_are_listed_and_a_word_finds_the_others() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = |name: &str| folder.path().join(name);
        let lab = Lab::new(place("runs"), place("experiments"), place("identity"));
        let database = Database::open(&place("identity")).expect("made");
        let written = database.write("make devices in", |transaction| {
            for number in 0..LISTED + 2 {
                let mut key = [0; 32];
                key[..8].copy_from_slice(&(number as u64).to_le_bytes());
                let client = PublicKey::from_bytes(key).client();
                let standing = if number == LISTED { "waiting" } else { "in" };
                transaction.execute(
                    "INSERT INTO devices (client, key, name, standing, since, seen) VALUES (?1, ?2, ?3, ?4, 0, 0)",
                    (client.as_bytes(), key, format!("jetson-{number:04}"), standing),
                )?;
            }
            Ok(())
        });
        written.expect("written");
        let page = |word: &str| show(&lab, &Wanted { q: word.to_owned() }).expect("shown");
        let rows = |page: &Shown| page.status.0.matches("<tr>").count() - 1;
        let all = page("");
        assert_eq!(rows(&all), LISTED);
        assert!(all.status.0.contains("and 2 others"), "{}", all.status.0);
        assert!(all.status.0.contains("waits for approval"), "{}", all.status.0);
        assert_eq!((rows(&page("JETSON-0007")), rows(&page("waiting"))), (1, 1));
        let none = page("raspberry").status.0;
        assert!(none.contains("No device matches.") && none.contains("value=\"raspberry\""), "{none}");
    }
}
