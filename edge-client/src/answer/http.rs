//! Requests in HTTP/1.1: a POST whose body is an image or a request object. As much of HTTP as `curl --data-binary` needs.

use std::io::{self, BufRead, Write};

use serde_json::Value;
use shared::data::images::is_image_content;

use super::reading::{MAX_REQUEST, Reader, Unread};
use super::request::{Service, answer_image, answer_line, refusal};

/// Header lines of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of one of them.
pub(super) const MAX_HEADER: usize = 8 << 10;

/// Whether a first line is one of HTTP.
pub(super) fn is_http(line: &[u8]) -> bool {
    line.trim_ascii_end().ends_with(b"HTTP/1.1") || line.trim_ascii_end().ends_with(b"HTTP/1.0")
}

/// Answers the request that begins with `first`; the connection is closed after it.
pub(super) fn serve(
    first: &[u8],
    input: &mut Reader<'_, impl BufRead>,
    out: &mut impl Write,
    service: &Service,
) -> io::Result<()> {
    if !first.starts_with(b"POST ") {
        return respond(
            out,
            "405 Method Not Allowed",
            &refusal("send a POST with an image or a request object"),
        );
    }
    let (mut length, mut expects) = (None, false);
    for number in 0.. {
        let line = match input.line(MAX_HEADER) {
            Ok(line) => line,
            Err(unread) => return fail(out, unread, "431 Request Header Fields Too Large"),
        };
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if line.is_empty() {
            break;
        }
        if number >= MAX_HEADERS {
            return respond(out, "431 Request Header Fields Too Large", &refusal("too many headers"));
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok();
        } else if name.eq_ignore_ascii_case("expect") {
            expects = true;
        } else if name.eq_ignore_ascii_case("origin") {
            // A page of the web that a browser on this device shows is no program of this device.
            return respond(out, "403 Forbidden", &refusal("pages of the web are not answered"));
        }
    }
    let Some(length) = length else {
        return respond(out, "411 Length Required", &refusal("say the Content-Length"));
    };
    if length > MAX_REQUEST {
        let reason = format!("{length} bytes, and {MAX_REQUEST} are the most");
        return respond(out, "413 Content Too Large", &refusal(&reason));
    }
    if expects {
        out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = match input.body(length) {
        Ok(body) => body,
        Err(unread) => return fail(out, unread, "413 Content Too Large"),
    };
    if body.len() < length {
        let reason = format!("the body ended after {} of {length} bytes", body.len());
        return respond(out, "400 Bad Request", &refusal(&reason));
    }
    let answer =
        if is_image_content(&body) { answer_image(service, &body) } else { answer_line(service, &body) };
    let status = if answer.get("error").is_some() { "400 Bad Request" } else { "200 OK" };
    respond(out, status, &answer)
}

/// Answers a request that was not read to its end; a program that has disconnected is told nothing.
fn fail(out: &mut impl Write, unread: Unread, too_large: &str) -> io::Result<()> {
    let status = match unread {
        Unread::Gone(error) => return Err(error),
        Unread::TooLarge(_) => too_large,
        Unread::TooSlow(_) => "408 Request Timeout",
        Unread::NoRoom => "503 Service Unavailable",
    };
    respond(out, status, &refusal(&unread.to_string()))
}

/// Writes an answer.
pub(super) fn respond(out: &mut impl Write, status: &str, answer: &Value) -> io::Result<()> {
    let body = format!("{answer}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    out.write_all((head + &body).as_bytes())?;
    out.flush()
}
