//! Who may look, and who may change something.
//!
//! * The `Host` of a request is an address, `localhost` or a name that was given: a page of the web cannot have its own name lead
//!   here (DNS rebinding).
//! * An `Origin` is that of the page itself: other pages can send requests, and are refused.
//! * Where there is a token, a visitor shows it once and has a cookie from then on, which scripts cannot read and other sites do not
//!   send.
//! * A change is a POST with a value that the page alone knows.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// The least number of characters of a token.
const MIN_TOKEN: usize = 24;

/// The name of the cookie.
const COOKIE: &str = "federation-page";

/// What visitors must know.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a file holds no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// It can be guessed.
    #[error(
        "the token in {} has {found} characters, and at least {MIN_TOKEN} are needed: make one with `openssl rand -hex 32`",
        path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// How many it has.
        found: usize,
    },
}

impl Token {
    /// The token in a file: its text without spaces around it.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let path = path.to_owned();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(TokenError::Read { path, error }),
        };
        let text = text.trim();
        match text.chars().count() {
            found if found < MIN_TOKEN => Err(TokenError::Short { path, found }),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

/// The rules of one process.
pub(super) struct Access {
    token: Option<Token>,
    hosts: Vec<String>,
    read_only: bool,
    /// Drawn when the process starts.
    secret: [u8; 32],
}

/// What a request says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visit<'a> {
    pub(super) host: Option<&'a str>,
    pub(super) origin: Option<&'a str>,
    /// All of the `Cookie` header.
    pub(super) cookie: Option<&'a str>,
    /// The token itself, as a program sends it that keeps no cookies.
    pub(super) bearer: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// The name is not one of this page.
    #[error(
        "the page is not called so: open it by its address, or start it with `aggregator page --host NAME` for a name of its own"
    )]
    Host,
    /// Another page has sent it.
    #[error("the request comes from another page")]
    Origin,
    /// The visitor has shown no token.
    #[error("show the token first: it is in the file that `--token-file` names")]
    Stranger,
    /// The form is of another process, or was made up.
    #[error("the form is out of date: load the page again, and repeat what you wanted")]
    Form,
    /// Nothing can be changed.
    #[error("this page is for looking alone: it was started with --read-only")]
    ReadOnly,
}

impl Access {
    pub(super) fn new(token: Option<Token>, hosts: Vec<String>, read_only: bool, secret: [u8; 32]) -> Self {
        Self { token, hosts, read_only, secret }
    }

    /// Whether a request is for this page, and from it if it says from where.
    pub(super) fn addressed(&self, visit: Visit<'_>) -> Result<(), Denied> {
        let host = visit.host.ok_or(Denied::Host)?;
        if !self.is_name(host) {
            return Err(Denied::Host);
        }
        let of_page = |origin: &str| {
            let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            place.is_some_and(|place| place.eq_ignore_ascii_case(host))
        };
        if visit.origin.is_some_and(|origin| !of_page(origin)) { Err(Denied::Origin) } else { Ok(()) }
    }

    /// Whether a visitor may see anything.
    pub(super) fn may_look(&self, visit: Visit<'_>) -> Result<(), Denied> {
        let Some(session) = self.session() else { return Ok(()) };
        let cookies = visit.cookie.unwrap_or("").split(';');
        let mut shown = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let known = shown.any(|(name, value)| name == COOKIE && same(value, &session))
            || visit.bearer.is_some_and(|bearer| self.opens(bearer));
        if known { Ok(()) } else { Err(Denied::Stranger) }
    }

    /// Whether a form of this page was sent, by a page that says where it comes from.
    pub(super) fn may_change(&self, visit: Visit<'_>, form: &str) -> Result<(), Denied> {
        if self.read_only {
            return Err(Denied::ReadOnly);
        }
        if visit.origin.is_none() {
            return Err(Denied::Origin);
        }
        if same(form, &self.form()) { Ok(()) } else { Err(Denied::Form) }
    }

    /// Whether this is the token.
    pub(super) fn opens(&self, shown: &str) -> bool {
        self.token.as_ref().is_some_and(|token| same(shown.trim(), &token.0))
    }

    /// The cookie of a visitor who has shown the token; `None` where there is no token. A browser that came over TLS, through a proxy,
    /// sends it over nothing else.
    pub(super) fn cookie(&self, visit: Visit<'_>) -> Option<String> {
        let secure = visit.origin.is_some_and(|origin| origin.starts_with("https://"));
        let secure = if secure { "; Secure" } else { "" };
        Some(format!(
            "{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800{secure}",
            self.session()?
        ))
    }

    /// The value of forms.
    pub(super) fn form(&self) -> String {
        digest(&[b"form", &self.secret])
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What a cookie holds: it outlives this process and goes with the token, which it does not tell.
    fn session(&self) -> Option<String> {
        self.token.as_ref().map(|token| digest(&[b"session", token.0.as_bytes()]))
    }

    fn is_name(&self, host: &str) -> bool {
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(""),
            None => host.split(':').next().unwrap_or(""),
        };
        bare.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|name| name.eq_ignore_ascii_case(bare))
    }
}

fn digest(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    HEXLOWER.encode(&digest.finalize())
}

/// Whether two secrets are the same: how long this takes says nothing of where they differ.
fn same(one: &str, other: &str) -> bool {
    digest(&[one.as_bytes()]) == digest(&[other.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789";

    fn access(token: Option<&str>, read_only: bool) -> Access {
        let token = token.map(|token| Token(token.to_owned()));
        Access::new(token, vec!["lab.example".to_owned()], read_only, [7; 32])
    }

    fn visit<'a>(host: &'a str, origin: Option<&'a str>) -> Visit<'a> {
        Visit { host: Some(host), origin, ..Visit::default() }
    }

    #[test]
    fn other_names_and_other_pages_are_refused() {
        let access = access(None, false);
        for host in ["127.0.0.1:8420", "[::1]:8420", "localhost:8420", "LAB.example", "192.0.2.7:1"] {
            assert_eq!(access.addressed(visit(host, None)), Ok(()), "{host}");
            let own = format!("http://{host}");
            assert_eq!(access.addressed(visit(host, Some(&own))), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8420", "", "127.0.0.1.evil.example"] {
            assert_eq!(access.addressed(visit(host, None)), Err(Denied::Host), "{host}");
        }
        assert_eq!(access.addressed(Visit::default()), Err(Denied::Host));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80", "127.0.0.1:8420"] {
            assert_eq!(access.addressed(visit("127.0.0.1:8420", Some(origin))), Err(Denied::Origin));
        }
    }

    #[test]
    fn a_visitor_shows_the_token_once_and_has_a_cookie_from_then_on() {
        let access = access(Some(TOKEN), false);
        assert_eq!(access.may_look(Visit::default()), Err(Denied::Stranger));
        assert!(access.opens(TOKEN) && access.opens("0123456789abcdef0123456789\n") && !access.opens("0123"));
        let cookie = access.cookie(Visit::default()).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains(TOKEN), "{cookie}");
        let value = cookie.split(';').next().unwrap();
        let sent = format!("other=1; {value}");
        assert_eq!(access.may_look(Visit { cookie: Some(&sent), ..Visit::default() }), Ok(()));
        let forged = format!("{COOKIE}={}", "0".repeat(64));
        assert_eq!(
            access.may_look(Visit { cookie: Some(&forged), ..Visit::default() }),
            Err(Denied::Stranger)
        );
        assert_eq!(access.may_look(Visit { bearer: Some(TOKEN), ..Visit::default() }), Ok(()));
        assert_eq!(access.may_look(Visit { bearer: Some("0"), ..Visit::default() }), Err(Denied::Stranger));
        // Another token, another cookie.
        let other = self::access(Some("another token that is long enough"), false);
        assert_eq!(other.may_look(Visit { cookie: Some(&sent), ..Visit::default() }), Err(Denied::Stranger));
        assert!(!self::access(None, false).opens(""), "where there is no token, none opens");
    }

    #[test]
    fn changes_need_a_form_of_this_page_and_are_refused_where_it_is_for_looking() {
        let own = visit("localhost", Some("http://localhost"));
        let access = access(None, false);
        let form = access.form();
        assert_eq!(access.may_change(own, &form), Ok(()));
        assert_eq!(access.may_change(own, "0"), Err(Denied::Form));
        assert_eq!(access.may_change(visit("localhost", None), &form), Err(Denied::Origin));
        let restarted = Access::new(None, Vec::new(), false, [8; 32]);
        assert_eq!(restarted.may_change(own, &form), Err(Denied::Form));
        assert_eq!(self::access(None, true).may_change(own, &form), Err(Denied::ReadOnly));
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(Token::read(&path), Err(TokenError::Read { .. })));
        std::fs::write(&path, "secret\n").unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Short { found: 6, .. })));
        std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
        assert!(Token::read(&path).is_ok_and(|token| token.0 == TOKEN));
    }
}
