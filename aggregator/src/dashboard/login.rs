//! The page that asks a visitor for the token, and gives a cookie for it.

use axum::extract::{Extension, Form};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::Denied;
use super::answers::{html, redirect, refused, visit};
use super::pages;
use super::state::State;

pub(super) async fn show(Extension(state): Extension<State>) -> Response {
    html(pages::login(None, &state.0.access))
}

/// The form of a visitor who shows the token.
#[derive(Deserialize)]
pub(super) struct Shows {
    token: String,
}

pub(super) async fn check(
    Extension(state): Extension<State>,
    headers: HeaderMap,
    Form(shows): Form<Shows>,
) -> Response {
    let visit = visit(&headers);
    if visit.origin.is_none() {
        return refused(Denied::Origin);
    }
    let cookie = state.0.access.cookie(visit).filter(|_| state.0.access.opens(&shows.token));
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
        let mut response = redirect("/");
        response.headers_mut().insert(SET_COOKIE, cookie);
        return response;
    }
    let page = pages::login(Some("This is not the token."), &state.0.access);
    (StatusCode::UNAUTHORIZED, html(page)).into_response()
}
