//! Who asks, and answers that are no page of a run.

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use maud::Markup;

use super::access::{Denied, Visit};

/// What a request says of the visitor.
pub(super) fn visit(headers: &HeaderMap) -> Visit<'_> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // A value that is no text is of no page of ours, and is refused as such.
    let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or(""));
    let bearer = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    Visit { host: text(HOST), origin, cookie: text(COOKIE), bearer }
}

/// Sends the visitor to another page.
pub(super) fn redirect(to: &str) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Refuses a request.
pub(super) fn refused(denied: Denied) -> Response {
    let status = match denied {
        Denied::Stranger => StatusCode::UNAUTHORIZED,
        Denied::Host | Denied::Origin | Denied::Form | Denied::ReadOnly => StatusCode::FORBIDDEN,
    };
    (status, format!("{denied}\n")).into_response()
}

/// The answer after a panic.
pub(super) fn panicked() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "internal error: please report this\n").into_response()
}

/// A page.
pub(super) fn html(markup: Markup) -> Response {
    text_html(markup.into_string())
}

/// A page, or a part of one.
pub(super) fn text_html(text: String) -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}
