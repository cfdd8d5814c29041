//! The pages, and what they share.
//!
//! A page has at most two parts that are swapped while it is open: `status`, which changes with every progress, and `rounds`, which
//! changes when a round closes.

pub(super) mod devices;
#[cfg(feature = "simulate")]
pub(super) mod experiments;
pub(super) mod filter;
pub(super) mod round;
pub(super) mod run;
pub(super) mod runs;
#[cfg(feature = "cluster")]
mod servers;
mod sparkline;
mod waiting;

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;
use shared::calendar::utc;

use super::access::Access;
use super::lab::RunName;
use crate::report::clock::elapsed;
use crate::report::html::{STYLE, metas};

/// Seconds after which a page without script loads itself again.
const REFRESH: &str = "5";

/// What is asked for of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// The whole page.
    #[default]
    All,
    /// What changes with every progress.
    Status,
    /// Forms, which change with what they are about.
    Forms,
    /// What changes when a round closes.
    Rounds,
}

/// The entries of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Runs,
    Devices,
    #[cfg(feature = "simulate")]
    Experiments,
}

impl Tab {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Runs, "/", "Runs"),
        (Self::Devices, "/devices", "Devices"),
        #[cfg(feature = "simulate")]
        (Self::Experiments, "/experiments", "Experiments"),
    ];
}

/// A page as it was drawn.
pub(super) struct Shown {
    pub(super) tab: Tab,
    pub(super) title: String,
    /// The sentence below the heading.
    pub(super) lead: Markup,
    pub(super) status: Markup,
    pub(super) rounds: Markup,
    /// What has forms, which know the visitor's session: it stands between the two parts.
    pub(super) forms: Option<Forms>,
}

/// Draws forms with the value that shows that this page has sent them.
pub(super) type Forms = Box<dyn FnOnce(&str) -> Markup + Send>;

/// A page and its parts, as text.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    all: String,
    status: String,
    forms: String,
    rounds: String,
}

impl Drawn {
    pub(super) fn part(&self, part: Part) -> &str {
        match part {
            Part::All => &self.all,
            Part::Status => &self.status,
            Part::Forms => &self.forms,
            Part::Rounds => &self.rounds,
        }
    }
}

impl Shown {
    /// The page and its parts.
    pub(super) fn drawn(self, access: &Access) -> Drawn {
        let forms = self.forms.filter(|_| !access.is_read_only()).map(|forms| forms(&access.form()));
        let body = html! {
            div #status .part { (self.status) }
            @if let Some(forms) = &forms { div #forms .part { (forms) } }
            div #rounds .part { (self.rounds) }
        };
        let reloads = !body.0.contains("<form");
        let kept = Kept { tab: Some(self.tab), reloads };
        let all = document(kept, &self.title, &self.lead, &body, access).into_string();
        let forms = forms.map_or_else(String::new, Markup::into_string);
        Drawn { all, status: self.status.into_string(), forms, rounds: self.rounds.into_string() }
    }
}

/// The style sheet: that of reports, and what they do not have.
pub(super) fn style() -> String {
    [STYLE, include_str!("../style.css")].concat()
}

/// A page with nothing but a message.
pub(super) fn message(title: &str, text: &str, access: &Access) -> Markup {
    document(Kept::default(), title, &html! {}, &html! { section.card role="alert" { p { (text) } } }, access)
}

/// The page that asks for the token.
pub(super) fn login(wrong: Option<&str>, access: &Access) -> Markup {
    let body = html! {
        section.card {
            form method="post" action="/login" {
                p { label for="token" { "Token, as in the file that " code { "--token-file" } " names" } }
                p { input #token type="password" name="token" required autofocus autocomplete="current-password"; }
                @if let Some(wrong) = wrong { p.wrong role="alert" { (wrong) } }
                p { button type="submit" { "Open the page" } }
            }
        }
    };
    document(Kept::default(), "Who is there?", &html! {}, &body, access)
}

/// Where a page stands in the menu, and how it is kept new.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// The entry that it belongs to; `None` of a page that is not kept new.
    tab: Option<Tab>,
    /// Whether it loads itself again without script: nothing in it is typed, or shown once.
    reloads: bool,
}

fn document(
    Kept { tab, reloads }: Kept,
    title: &str,
    lead: &Markup,
    body: &Markup,
    access: &Access,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (metas())
                title { (title) " - federation" }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="data:,";
                @if tab.is_some() {
                    script src="/script.js" defer {}
                    @if reloads { noscript { meta http-equiv="refresh" content=(REFRESH); } }
                }
            }
            body.live {
                a.skip href="#main" { "To the content" }
                @if let Some(tab) = tab {
                    nav aria-label="Pages" {
                        ul {
                            @for &(of, place, name) in Tab::ALL {
                                li { a href=(place) aria-current=[(of == tab).then_some("page")] { (name) } }
                            }
                        }
                        p.told { @if access.is_read_only() { "read only, " } span #told role="status" { "as of now" } }
                    }
                }
                header { h1 { (title) } p.lead { (lead) } }
                main #main { (body) }
                footer { "aggregator " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

/// How long ago a moment was, with the moment itself for those who want it.
fn ago(moment: i64, now: i64) -> Markup {
    let at = utc(moment);
    html! { time datetime=(at) title=(at) { (elapsed(now.saturating_sub(moment))) " ago" } }
}

/// A name or another part of an address, as it stands in one.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

impl RunName {
    /// The address of its page.
    pub(in crate::dashboard) fn place(&self) -> String {
        let of = self.experiment.as_ref().map(|experiment| format!("/experiments/{}", escaped(experiment)));
        format!("{}/runs/{}", of.unwrap_or_default(), escaped(&self.name))
    }

    fn tab(&self) -> Tab {
        #[cfg(feature = "simulate")]
        if self.experiment.is_some() {
            return Tab::Experiments;
        }
        Tab::Runs
    }
}

/// The address of the page of a run that is of no experiment.
fn run_place(name: &str) -> String {
    RunName { experiment: None, name: name.to_owned() }.place()
}
