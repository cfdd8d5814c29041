//! HTTP requests, one for each connection, as far as tests need them.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::process::PATIENCE;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status; 0 if the connection was closed without an answer.
    pub status: u16,
    /// The lines of the head, without the first.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What stands in the body behind `before`, as far as a quotation mark.
    #[must_use]
    pub fn quoted(&self, before: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(before)?;
        rest.split('"').next()
    }
}

/// A request with these headers beside `Host`, unless they have one.
///
/// # Errors
/// If there is no connection.
pub fn request(
    address: &str,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        let _ = write!(head, "Host: {address}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    // It may be refused before all is sent.
    let _ = stream.write_all((head + body).as_bytes());
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    let mut line = String::new();
    // A connection that ends here has no answer.
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && !line.trim_end().is_empty() {
        head.push(line.trim_end().to_owned());
        line.clear();
    }
    let first = if head.is_empty() { String::new() } else { head.remove(0) };
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut answer = Answer { status, head, body: String::new() };
    // Some keep the connection open all the same.
    let length = answer.header("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(u64::MAX);
    let mut body = Vec::new();
    if answer.header("Transfer-Encoding").is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked")) {
        chunks(&mut reader, &mut body)?;
    } else {
        let _ = reader.take(length).read_to_end(&mut body);
    }
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Ok(answer)
}

/// Reads a body in chunks (RFC 9112, section 7.1), without what may follow the last one.
fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim_end().split(';').next().unwrap_or_default(), 16)
            .map_err(io::Error::other)?;
        if size == 0 {
            return Ok(());
        }
        reader.by_ref().take(size).read_to_end(body)?;
        reader.read_line(&mut line)?;
    }
}
