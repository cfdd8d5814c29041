//! `aggregator ticket`: what a device needs to join, and nothing else.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use qrcode::render::unicode::Dense1x2;
use serde_json::json;
use shared::cli::address;
use shared::identity::PublicKey;
use shared::ticket::Ticket;

use super::exit::Failure;
use super::lost_identity::refuse_if_lost;
use super::parse::whole;
use super::{LabArgs, lab_options, terminal};
#[cfg(feature = "cluster")]
use crate::cluster::register::is_carried;
use crate::database::{Database, moment};
use crate::enrolment::IssuedTicket;
use crate::issue::{IssueError, MAX_USES, NewTicket, Wanted, code, issue};
use crate::report::units::seconds;
use crate::storage::Disk;
use crate::transport::identity::ServerIdentity;

/// Where the service of the package has its runs.
const PACKAGED: &str = "/var/lib/aggregator";

/// No clock that is right shows a moment before this one, 1 May 2026, in milliseconds since 1970. A moment in the source and
/// not that of the build: the same source gives the same program.
const WRITTEN: i64 = 1_777_593_600_000;

/// How long a ticket, or a change of one or of a device, is on its way to the other servers, at most. Where devices show a ticket to one that
/// does not know it, they are refused.
#[cfg(feature = "cluster")]
const CARRIED: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct TicketArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// How many devices it lets in
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = whole::<u32>(1..=MAX_USES.into()), allow_negative_numbers = true
    )]
    uses: u32,
    /// For how long it lets devices in, as in 30m, 24h or 7d; a device that is in stays in
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lasting)]
    expires: Duration,
    /// Where devices reach the server, if not at this machine's own addresses; may be given more than once
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    addresses: Vec<String>,
    /// Print the code for a camera as well, even if this is not a terminal
    #[arg(long)]
    qr: bool,
    /// List the tickets that still let a device in, instead
    #[arg(long, conflicts_with_all = ["uses", "expires", "addresses", "qr"])]
    list: bool,
    /// Make the ticket with this number good for nothing, instead; devices that are in stay in
    #[arg(
        long, value_name = "NUMBER", conflicts_with_all = ["uses", "expires", "addresses", "qr", "list"],
        value_parser = whole::<i64>(1..=i64::MAX.unsigned_abs()), allow_negative_numbers = true
    )]
    withdraw: Option<i64>,
}

pub(super) fn ticket(arguments: &TicketArgs) -> Result<(), Failure> {
    let directory = arguments.lab.directory();
    let now = SystemTime::now();
    if arguments.list || arguments.withdraw.is_some() {
        let database = Database::open_existing(&directory)?;
        return match arguments.withdraw {
            None => {
                let good = database.map(|database| IssuedTicket::good(&database, now)).transpose();
                list(&good?.unwrap_or_default(), now, arguments.lab.json)
            }
            Some(number) => withdraw(database.as_ref(), &directory, number, arguments.lab.json),
        };
    }
    refuse_if_lost(&directory, &arguments.lab.runs)?;
    let known = ServerIdentity::load(&Disk, &directory)?.is_some();
    let identity = ServerIdentity::load_or_create(&Disk, &directory)?;
    let database = Database::open(&directory)?;
    let newest = IssuedTicket::newest(&database)?;
    let TicketArgs { uses, expires, addresses, .. } = arguments;
    let wanted = Wanted { uses: *uses, lasts: *expires, addresses: addresses.clone() };
    let NewTicket { ticket, issued } = issue(&database, identity.key(), wanted, now)?;
    // The ticket is made: it is printed also where that cannot be read.
    #[cfg(feature = "cluster")]
    if !is_carried(&database, identity.key(), CARRIED).unwrap_or(true) {
        terminal::tell(
            "the other servers of the lab do not know this ticket yet: they will once this one runs and reaches the store",
        );
    }
    print(&ticket, &issued, arguments)?;
    if !known {
        let options = lab_options(&arguments.lab.runs, arguments.lab.identity.as_deref());
        terminal::tell(&newly_made(&directory, &options, Path::new(PACKAGED)));
    }
    if let Some(doubt) = doubt_of_the_clock(issued.made, newest) {
        terminal::tell(&doubt);
    }
    Ok(())
}

/// Makes the ticket with this number good for nothing.
fn withdraw(database: Option<&Database>, directory: &Path, number: i64, json: bool) -> Result<(), Failure> {
    let there = database.map(|database| IssuedTicket::withdraw(database, number)).transpose()?;
    let Some((database, true)) = database.zip(there) else {
        return Err(Failure::Usage(format!("there is no ticket {number}: --list shows those that are good")));
    };
    if json {
        terminal::print_json(&json!({ "withdrawn": number }))?;
    } else {
        terminal::print(&format!("ticket {number} admits no device any more\n"))?;
    }
    tell_if_not_carried(database, directory);
    Ok(())
}

/// Says so if the other servers of the lab do not hear at once who is not to be let in any more.
pub(super) fn tell_if_not_carried(database: &Database, directory: &Path) {
    #[cfg(feature = "cluster")]
    if !is_known_elsewhere(database, directory, CARRIED) {
        terminal::tell(
            "WARNING: the other servers of the lab do not know of this yet, and let devices in as before: they will know once this one \
             runs and reaches the store",
        );
    }
    #[cfg(not(feature = "cluster"))]
    let _ = (database, directory);
}

/// Whether all servers of the lab that has its key in `directory` can know what was changed in `database`; waits for that, at most this long.
#[cfg(feature = "cluster")]
fn is_known_elsewhere(database: &Database, directory: &Path, patience: Duration) -> bool {
    match ServerIdentity::load(&Disk, directory) {
        Ok(Some(identity)) => is_carried(database, identity.key(), patience).unwrap_or(false),
        // It is no server's yet.
        Ok(None) => true,
        Err(_) => false,
    }
}

/// What to say where a ticket has made the server that it is of.
fn newly_made(directory: &Path, options: &str, packaged: &Path) -> String {
    let serve =
        if options.is_empty() { String::new() } else { format!(" (`aggregator serve CONFIG{options}`)") };
    let mut said = format!(
        "the server's key was made in {}, for a server that is started with it{serve}",
        directory.display()
    );
    if packaged.exists() && !directory.starts_with(packaged) {
        let packaged = packaged.display();
        let _ = write!(
            said,
            ". WARNING: the service of the package has its own: `sudo -u aggregator aggregator ticket --runs {packaged}`"
        );
    }
    said
}

/// What to say of a clock by which this ticket was made before this program was written, or before the `newest` one until now:
/// the ticket expires by the clock of the day on which a device shows it.
fn doubt_of_the_clock(made: i64, newest: Option<i64>) -> Option<String> {
    let before = if made < WRITTEN {
        "this program was written"
    } else if newest.is_some_and(|newest| made < newest) {
        "the last ticket was made"
    } else {
        return None;
    };
    Some(format!(
        "WARNING: by the clock of this machine it is a time before {before}. When the clock is set, the ticket may expire early \
         or at once: set it now (`timedatectl`), and make another ticket"
    ))
}

fn print(ticket: &Ticket, issued: &IssuedTicket, arguments: &TicketArgs) -> Result<(), Failure> {
    let text = ticket.to_string();
    if arguments.lab.json {
        let server: PublicKey = ticket.server;
        let (number, uses, expires) = (issued.number, issued.uses, issued.expires);
        return terminal::print_json(&json!({
            "ticket": text, "number": number, "uses": uses, "expires": expires, "server": server,
            "addresses": ticket.addresses,
        }));
    }
    let mut page = format!("{text}\n");
    if arguments.qr || std::io::stdout().is_terminal() {
        let code = code(ticket)
            .ok_or_else(|| Failure::Internal("the ticket does not fit into a code".to_owned()))?;
        // Dark on light with any terminal colours: cameras expect it.
        let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
        let _ = write!(page, "\n{drawn}\n");
    }
    terminal::print(&page)?;
    terminal::tell(&format!(
        "ticket {} lets {} in for {}, at {}. On each: edge-client join TICKET --data DIR (--ticket-file - asks for \
         the ticket)",
        issued.number,
        if issued.uses == 1 { "one device".to_owned() } else { format!("{} devices", issued.uses) },
        seconds(arguments.expires.as_secs_f64()),
        ticket.addresses.join(" or "),
    ));
    Ok(())
}

fn list(good: &[IssuedTicket], now: SystemTime, json: bool) -> Result<(), Failure> {
    if json {
        return terminal::print_json(&json!(good));
    }
    let mut page = String::new();
    for ticket in good {
        let left = (ticket.expires - moment(now)) as f64 / 1e3;
        let _ = writeln!(
            page,
            "ticket {}: lets {} of {} in, for another {}",
            ticket.number,
            ticket.left,
            ticket.uses,
            seconds(left)
        );
    }
    if good.is_empty() {
        page.push_str("no ticket lets a device in\n");
    }
    terminal::print(&page)
}

impl From<IssueError> for Failure {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Database(error) => error.into(),
            error @ (IssueError::Random(_) | IssueError::NoAddress { .. }) => Self::environment(error),
            error @ IssueError::TooManyAddresses => Self::Usage(error.to_string()),
        }
    }
}

/// A time such as `30m`, `24h` or `7d`.
pub(super) fn lasting(text: &str) -> Result<Duration, String> {
    const LONGEST: u64 = 10 * 365 * 86_400;
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    });
    let seconds = unit.and_then(|unit: u64| text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=LONGEST).contains(seconds));
    let seconds =
        seconds.ok_or("give a whole number and s, m, h or d, as in 30m, 24h or 7d; at most ten years")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("45s", 45), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(lasting(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "24", "-1h", "0d", "1.5h", "99999999d", "24 h", "é"] {
            assert!(lasting(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn what_other_servers_do_not_hear_of_is_noticed() {
        use shared::ticket::TicketSecret;

        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let known = || is_known_elsewhere(&database, folder.path(), Duration::ZERO);
        let (secret, hour) = (TicketSecret::from_bytes([1; 16]), Duration::from_hours(1));
        let made = IssuedTicket::make(&database, secret, 1, hour, SystemTime::now()).unwrap();
        assert!(known(), "it is no server's");
        let key = ServerIdentity::load_or_create(&Disk, folder.path()).unwrap().key();
        assert!(known(), "there are no other servers");
        let share = "INSERT INTO agreed_store (one, lab, instance, revision) VALUES (1, ?1, x'01', 1)";
        database.write("share", |transaction| transaction.execute(share, [&key.as_bytes()[..]])).unwrap();
        assert!(!known(), "the ticket");
        assert!(IssuedTicket::withdraw(&database, made.number).unwrap());
        assert!(known(), "they have never heard of it");
    }

    #[test]
    fn a_ticket_that_makes_a_server_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let (here, packaged) = (folder.path().join("here/identity"), folder.path().join("packaged"));
        let said = newly_made(&here, "", &packaged);
        assert!(said.contains(here.to_str().unwrap()) && !said.contains("WARNING"), "{said}");
        assert!(newly_made(&here, " --runs lab", &packaged).contains("`aggregator serve CONFIG --runs lab`"));
        std::fs::create_dir(&packaged).unwrap();
        let said = newly_made(&here, "", &packaged);
        assert!(said.contains(&format!("--runs {}", packaged.display())), "{said}");
        assert!(!newly_made(&packaged.join("identity"), "", &packaged).contains("sudo"));
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_told_of() {
        assert_eq!(doubt_of_the_clock(WRITTEN, None), None);
        assert_eq!(doubt_of_the_clock(WRITTEN + 1, Some(WRITTEN)), None);
        assert!(doubt_of_the_clock(0, None).unwrap().contains("program was written"));
        assert!(doubt_of_the_clock(WRITTEN + 1, Some(WRITTEN + 2)).unwrap().contains("last ticket"));
    }
}
