//! What is answered to which request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Extension, Form, Path, Query, RawQuery, Request};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, extract};
use futures_util::stream;
use serde::Deserialize;
use tokio::time::timeout;

use super::actions::{self, ActionError, DeviceForm, TicketForm};
use super::answers::{html, panicked, redirect, refused, text_html, visit};
use super::lab::{Lab, LabError, RunName};
use super::pages::{self, Part, Shown};
use super::state::State;
use super::{login, metrics};

/// The largest form, in bytes.
const MAX_FORM: usize = 4 << 10;
/// How long an answer may take, pages that watch apart.
const ANSWER: Duration = Duration::from_secs(30);

/// No script but ours, nothing from elsewhere, in no frame; widths of some charts are styles of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn router(state: State) -> Router {
    let pages = Router::new();
    #[cfg(feature = "simulate")]
    let pages = pages
        .route("/experiments", get(experiments))
        .route("/experiments/{experiment}/runs/{name}", get(run_of_experiment))
        .route("/experiments/{experiment}/runs/{name}/rounds/{round}", get(round_of_experiment))
        .route("/compare", get(compare));
    let pages = pages
        .route("/", get(runs))
        .route("/runs/{name}", get(run))
        .route("/runs/{name}/rounds/{round}", get(round))
        .route("/devices", get(devices).post(change_device))
        .route("/tickets", post(make_ticket))
        .route("/metrics", get(show_metrics))
        .route_layer(middleware::from_fn(in_time))
        .route("/changes", get(changes))
        .route_layer(middleware::from_fn(known));
    let open = Router::new()
        .route("/login", get(login::show).post(login::check))
        .route("/style.css", get(style))
        .route("/script.js", get(script))
        .route_layer(middleware::from_fn(in_time));
    pages
        .merge(open)
        .fallback(nothing)
        .layer(middleware::from_fn(guard))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .layer(Extension(state))
}

/// Refuses what is not for this page, and says to the browser what it may do with an answer.
async fn guard(Extension(state): Extension<State>, request: Request, next: Next) -> Response {
    let mut response = match state.0.access.addressed(visit(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(denied) => refused(denied),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Sends visitors without a cookie to the page that asks for the token.
async fn known(Extension(state): Extension<State>, request: Request, next: Next) -> Response {
    match state.0.access.may_look(visit(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(denied) if request.uri().path() == "/metrics" => refused(denied),
        Err(_) => redirect("/login"),
    }
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = || (StatusCode::SERVICE_UNAVAILABLE, "this takes too long: try again\n").into_response();
    timeout(ANSWER, next.run(request)).await.unwrap_or_else(|_| late())
}

/// Which part of a page is asked for.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    #[serde(default)]
    part: Part,
}

/// A page or a part of it, drawn once for all visitors until something changes.
async fn shown(
    state: State,
    place: String,
    part: Part,
    draw: impl FnOnce(&Lab) -> Result<Shown, LabError> + Send + 'static,
) -> Response {
    let inner = state.0.clone();
    let drawing = tokio::task::spawn_blocking(move || -> Result<String, LabError> {
        let changes = &inner.told.changes;
        // Changes are only noticed while a page is open.
        let now = (changes.receiver_count() > 0).then(|| *changes.borrow());
        inner.drawings.part(place, part, now, || Ok(draw(&inner.lab)?.drawn(&inner.access)))
    });
    match drawing.await {
        Ok(Ok(text)) => text_html(text),
        Ok(Err(error)) => failed(&state, &error),
        Err(_) => panicked(),
    }
}

fn failed(state: &State, error: &LabError) -> Response {
    let status = match error {
        LabError::Unknown { .. } => StatusCode::NOT_FOUND,
        LabError::List { .. } | LabError::Page(_) | LabError::Database(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    (status, html(pages::message("This cannot be shown", &error.to_string(), &state.0.access)))
        .into_response()
}

/// The address of a page within this one, by which it is kept.
fn place(request: &str, query: Option<&str>) -> String {
    let named = query.unwrap_or("").split('&').filter(|pair| !pair.starts_with("part="));
    format!("{request}?{}", named.collect::<Vec<_>>().join("&"))
}

async fn runs(
    Extension(state): Extension<State>,
    Query(asked): Query<Asked>,
    Query(wanted): Query<pages::filter::Wanted>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(state, place("/", query.as_deref()), asked.part, move |lab| pages::runs::show(lab, &wanted)).await
}

async fn run(
    Extension(state): Extension<State>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    show_run(state, RunName { experiment: None, name }, asked.part).await
}

#[cfg(feature = "simulate")]
async fn run_of_experiment(
    Extension(state): Extension<State>,
    Path((experiment, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    show_run(state, RunName { experiment: Some(experiment), name }, asked.part).await
}

async fn show_run(state: State, name: RunName, part: Part) -> Response {
    shown(state, name.place(), part, move |lab| pages::run::show(lab, &name)).await
}

async fn round(
    Extension(state): Extension<State>,
    Path((name, round)): Path<(String, u32)>,
    Query(asked): Query<Asked>,
) -> Response {
    show_round(state, RunName { experiment: None, name }, round, asked.part).await
}

#[cfg(feature = "simulate")]
async fn round_of_experiment(
    Extension(state): Extension<State>,
    Path((experiment, name, round)): Path<(String, String, u32)>,
    Query(asked): Query<Asked>,
) -> Response {
    show_round(state, RunName { experiment: Some(experiment), name }, round, asked.part).await
}

async fn show_round(state: State, name: RunName, round: u32, part: Part) -> Response {
    let place = format!("{}/rounds/{round}", name.place());
    shown(state, place, part, move |lab| pages::round::show(lab, &name, round)).await
}

async fn devices(
    Extension(state): Extension<State>,
    Query(asked): Query<Asked>,
    Query(wanted): Query<pages::filter::Wanted>,
    RawQuery(query): RawQuery,
) -> Response {
    let kept = place("/devices", query.as_deref());
    shown(state, kept, asked.part, move |lab| pages::devices::show(lab, &wanted)).await
}

#[cfg(feature = "simulate")]
async fn experiments(Extension(state): Extension<State>, Query(asked): Query<Asked>) -> Response {
    shown(state, "/experiments".to_owned(), asked.part, pages::experiments::list).await
}

#[cfg(feature = "simulate")]
async fn compare(
    Extension(state): Extension<State>,
    Query(asked): Query<Asked>,
    Query(named): Query<Vec<(String, String)>>,
    RawQuery(query): RawQuery,
) -> Response {
    let kept = place("/compare", query.as_deref());
    shown(state, kept, asked.part, move |lab| pages::experiments::show(lab, &named)).await
}

async fn change_device(
    Extension(state): Extension<State>,
    Extension(visitor): Extension<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<DeviceForm>,
) -> Response {
    if let Err(denied) = state.0.access.may_change(visit(&headers), &form.form) {
        return refused(denied);
    }
    let lab = state.0.lab.clone();
    act(&state, move || actions::change(&lab, &form, visitor), |()| redirect("/devices")).await
}

async fn make_ticket(
    Extension(state): Extension<State>,
    Extension(visitor): Extension<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<TicketForm>,
) -> Response {
    if let Err(denied) = state.0.access.may_change(visit(&headers), &form.form) {
        return refused(denied);
    }
    let (lab, access) = (state.0.lab.clone(), state.0.clone());
    let made = move || actions::make_ticket(&lab, &form, visitor);
    act(&state, made, move |made| html(pages::devices::ticket(&made, &access.access))).await
}

/// Does something that may block, and answers with what came of it.
async fn act<T: Send + 'static>(
    state: &State,
    what: impl FnOnce() -> Result<T, ActionError> + Send + 'static,
    answer: impl FnOnce(T) -> Response,
) -> Response {
    match tokio::task::spawn_blocking(what).await {
        Ok(Ok(done)) => {
            state.0.told.changes.send_modify(|changes| changes.status += 1);
            answer(done)
        }
        Ok(Err(error)) => {
            let status =
                if error.is_visitors() { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
            let page = pages::message("Nothing was changed", &error.to_string(), &state.0.access);
            (status, html(page)).into_response()
        }
        Err(_) => panicked(),
    }
}

async fn show_metrics(Extension(state): Extension<State>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = metrics::Format::accepted(accept.unwrap_or_default());
    let lab = state.0.lab.clone();
    match tokio::task::spawn_blocking(move || metrics::text(&lab, format)).await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, format.content())], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(_) => panicked(),
    }
}

/// Says what has changed, for as long as the page is open.
async fn changes(Extension(state): Extension<State>) -> Response {
    let Ok(place) = state.0.watchers.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    };
    let receiver = state.0.told.changes.subscribe();
    let mut looks = state.0.told.looks.subscribe();
    // What changes from the next look on is told. What has changed before it is on the page that the first event asks for.
    let _ = looks.changed().await;
    let seen = *receiver.borrow();
    let events =
        stream::unfold((receiver, seen, true, place), |(mut receiver, seen, first, place)| async move {
            if !first {
                receiver.changed().await.ok()?;
            }
            let now = *receiver.borrow_and_update();
            let kind = if first || now.rounds != seen.rounds { "rounds" } else { "status" };
            // A browser passes over an event without data.
            let event = Event::default().event(kind).data(now.status.to_string());
            Some((Ok::<_, Infallible>(event), (receiver, now, false, place)))
        });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], pages::style()).into_response()
}

async fn script() -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("script.js")).into_response()
}

async fn nothing(Extension(state): Extension<State>, request: extract::Request) -> Response {
    let reason = format!("There is no page {}.", request.uri().path());
    (StatusCode::NOT_FOUND, html(pages::message("Nothing here", &reason, &state.0.access))).into_response()
}
