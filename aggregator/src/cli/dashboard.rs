//! `aggregator page`: the live page.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::exit::Failure;
use super::parse::address;
use super::run::runtime;
use super::{LabArgs, terminal};
use crate::dashboard::{Settings, Token, serve};

/// Where the page listens unless it is told.
pub(super) const ADDRESS: &str = "127.0.0.1:8420";

#[derive(Debug, Args)]
pub(super) struct PageArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// Directory of the experiments, as `compare` leaves them
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// Address to listen on; port 0 takes any free port. Other addresses than this machine's own need --token-file
    #[arg(long, value_name = "IP:PORT", default_value = ADDRESS, value_parser = address)]
    listen: SocketAddr,
    /// Visitors must know the token in this file: at least 24 characters, as `openssl rand -hex 32` prints them
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name under which visitors reach the page, as behind a proxy; may be given more than once
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Nothing can be changed from the page: for a screen on the wall
    #[arg(long)]
    read_only: bool,
    /// End when standard input does: with the process that has started this one
    #[arg(long, hide = true)]
    until_closed: bool,
}

pub(super) fn page(arguments: &PageArgs) -> Result<(), Failure> {
    let PageArgs { lab, listen, token_file, .. } = arguments;
    if !listen.ip().is_loopback() && token_file.is_none() {
        return Err(Failure::Usage(format!(
            "{listen} can be reached from other machines: --token-file FILE says what visitors must know, or listen at {ADDRESS} and \
             reach it with `ssh -L 8420:{ADDRESS} HOST`"
        )));
    }
    let token = token_file.as_deref().map(Token::read).transpose().map_err(Failure::environment)?;
    if !lab.runs.is_dir() {
        terminal::tell(&format!(
            "there is no directory {} yet: its runs are shown once there are some",
            lab.runs.display()
        ));
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let in_the_way = |error| {
            Failure::Environment(format!(
                "cannot listen at {listen}: {error}; is another page there? --listen takes another address"
            ))
        };
        let listener = TcpListener::bind(listen).await.map_err(in_the_way)?;
        let address = listener.local_addr().map_err(in_the_way)?;
        if lab.json {
            terminal::print_json(&json!({ "page": format!("http://{address}/") }))?;
        } else {
            terminal::tell(&format!("the page is at http://{address}/"));
        }
        let settings = Settings {
            runs: lab.runs.clone(),
            experiments: arguments.experiments.clone(),
            directory: lab.directory(),
            token,
            hosts: arguments.hosts.clone(),
            read_only: arguments.read_only,
        };
        let mut stop = terminal::stop_on_signal();
        let closed = closed(arguments.until_closed);
        let stopped = async {
            tokio::select! {
                _ = stop.stopped.wait_for(|stopped| *stopped) => {}
                () = closed => {}
            }
        };
        serve(settings, listener, stopped).await.map_err(Failure::environment)?;
        stop.failure().map_or(Ok(()), Err)
    })
}

/// Ends when standard input does, if it is watched.
async fn closed(watched: bool) {
    if !watched {
        return std::future::pending().await;
    }
    let (tell, told) = oneshot::channel::<()>();
    let wait = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(tell);
    };
    // Without the thread the page ends with a signal alone.
    if std::thread::Builder::new().spawn(wait).is_err() {
        return std::future::pending().await;
    }
    let _ = told.await;
}

/// The page as a process beside a run; it ends with this one, also with one that is killed.
#[derive(Debug)]
pub(super) struct Beside(#[expect(dead_code, reason = "its input is closed with it")] Child);

impl Beside {
    /// Starts it. The run goes on without a page that cannot be started, which says why itself.
    pub(super) fn start(listen: SocketAddr, runs: &Path, identity: Option<&Path>) -> Option<Self> {
        let start = || -> io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            let listen = listen.to_string();
            let options: [(&str, OsString); 2] = [("--listen", listen.into()), ("--runs", runs.into())];
            command.args(["page", "--until-closed"]);
            command.args(options.iter().flat_map(|(name, value)| [OsString::from(name), value.clone()]));
            if let Some(identity) = identity {
                command.arg("--identity").arg(identity);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
        };
        match start() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                terminal::tell(&format!(
                    "the page cannot be started, and the run goes on without it: {error}"
                ));
                None
            }
        }
    }
}
