//! One request, and its answer.
//!
//! A request is made ready before the model is asked for, so that a large image keeps no other program waiting. Images are decoded one
//! at a time: what decoding takes is taken once.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use shared::cli::{Names, causes, json_line, values_json};
use shared::data::{Dataset, Samples, View, images};
use shared::prediction::{Row, ValueRow};

use super::model::Loaded;
use crate::predict::Predictor;

/// What answers requests: one at a time.
#[derive(Debug)]
pub(super) struct Service {
    model: Mutex<Loaded>,
    /// Held while an image is decoded.
    decoding: Mutex<()>,
}

impl Service {
    pub(super) fn new(model: Loaded) -> Self {
        Self { model: Mutex::new(model), decoding: Mutex::new(()) }
    }

    /// Asks the newest model.
    fn ask<T>(&self, ask: impl FnOnce(&mut Predictor) -> T) -> T {
        ask(lock(&self.model).newest())
    }
}

/// A thread that panicked has left the model as it was between two answers.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest `id`, in bytes.
const MAX_ID: usize = 1 << 10;

/// What is asked. What can be long stays where it was read.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Request<'a> {
    /// Comes back with the answer.
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    /// The numbers of a sample; of a text the numbers of its tokens.
    #[serde(default)]
    values: Option<Vec<f32>>,
    /// A PNG or JPEG in base64.
    #[serde(default, borrow)]
    image: Option<Cow<'a, str>>,
    /// A text; of a model that continues texts the beginning of one.
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
    /// How many classes are answered.
    #[serde(default)]
    top_k: Option<usize>,
}

/// The answer to a line: an object with the answer, or with what is wrong with the request as `error`.
pub(super) fn answer_line(service: &Service, line: &[u8]) -> Value {
    let request: Request<'_> = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => {
            return refusal(&format!(
                "the request is no object with values, image or text, and perhaps id and top-k: {error}"
            ));
        }
    };
    let id = match request.id.map(RawValue::get) {
        Some(id) if id.len() > MAX_ID => {
            return refusal(&format!("the id has {} bytes, and {MAX_ID} are the most", id.len()));
        }
        id => id.and_then(|id| serde_json::from_str::<Value>(id).ok()),
    };
    let mut answer = asked(service, request).unwrap_or_else(|reason| refusal(&reason));
    if let Some(id) = id {
        answer["id"] = id;
    }
    answer
}

/// The answer to an image.
pub(super) fn answer_image(service: &Service, bytes: &[u8]) -> Value {
    image(service, || Ok(bytes))
        .and_then(|sample| service.ask(|predictor| about(predictor, sample, 1)))
        .unwrap_or_else(|reason| refusal(&reason))
}

/// An answer that says what is wrong.
pub(super) fn refusal(reason: &str) -> Value {
    json!({ "error": reason })
}

fn asked(service: &Service, request: Request<'_>) -> Result<Value, String> {
    let top_k = request.top_k.unwrap_or(1).max(1);
    match (request.values, request.image, request.text) {
        (Some(values), None, None) => service.ask(|predictor| {
            if predictor.continues_text() {
                let tokens = predictor.tokens_of(&values).map_err(|error| causes(&error))?;
                return after(predictor, &tokens, top_k);
            }
            let sample = features(predictor, values)?;
            about(predictor, sample, top_k)
        }),
        (None, Some(text), None) => {
            let bytes = || {
                let decoded = BASE64.decode(text.as_bytes());
                decoded.map_err(|error| format!("the image is not base64: {error}"))
            };
            let sample = image(service, bytes)?;
            service.ask(|predictor| about(predictor, sample, top_k))
        }
        (None, None, Some(text)) => service.ask(|predictor| {
            if let Some(sample) = predictor.text_sample(&text) {
                return about(predictor, sample.map_err(|error| causes(&error))?, top_k);
            }
            let tokens = predictor.tokens(&text).map_err(|error| causes(&error))?;
            after(predictor, &tokens, top_k)
        }),
        _ => Err("give one of values, the numbers of a sample, image, a PNG or JPEG in base64, and text"
            .to_owned()),
    }
}

/// The shape of a sample before it is prepared.
fn shape_of(predictor: &Predictor) -> Vec<usize> {
    match predictor.samples() {
        Some(samples) => samples.shape.clone(),
        None => predictor.architecture().input.clone(),
    }
}

fn features(predictor: &Predictor, values: Vec<f32>) -> Result<Dataset, String> {
    if predictor.architecture().predictions() != Ok(1) {
        return Err("the model answers at each position of a sequence, and not for one sample".to_owned());
    }
    let shape = shape_of(predictor);
    let (needed, found) = (shape.iter().product::<usize>(), values.len());
    if needed != found {
        let spelled = models::shape::spelled(&shape);
        return Err(format!("the model takes {needed} values, of shape {spelled}, and these are {found}"));
    }
    Dataset::unlabelled(shape, Samples::Floats(values)).map_err(|error| causes(&error))
}

/// The sample that an image is, whose bytes are made when its turn has come.
fn image<B: AsRef<[u8]>>(
    service: &Service,
    bytes: impl FnOnce() -> Result<B, String>,
) -> Result<Dataset, String> {
    let shape = service.ask(|predictor| shape_of(predictor));
    let _turn = lock(&service.decoding);
    images::read_bytes(bytes()?.as_ref(), Some(&shape)).map_err(|error| causes(&error))
}

/// What the model says about a sample.
fn about(predictor: &mut Predictor, sample: Dataset, top_k: usize) -> Result<Value, String> {
    let view = View::whole(Arc::new(sample));
    if !predictor.architecture().task.is_classification() {
        if top_k > 1 {
            return Err("top-k goes with models that tell classes apart, and this one gives all its numbers"
                .to_owned());
        }
        return values_of(predictor, &view);
    }
    let mut said = None;
    let mut row = |row| {
        said = Some(row);
        ControlFlow::Break(())
    };
    predictor.predict(&view, &mut row).map_err(|error| causes(&error))?;
    let said = said.ok_or("internal error: a sample without an answer; please report this")?;
    Ok(answer(predictor, &said, top_k))
}

/// The numbers, or the several labels with their probabilities, of a sample.
fn values_of(predictor: &mut Predictor, sample: &View) -> Result<Value, String> {
    let mut said = Value::Null;
    let names = Names::new(predictor.names(), Vec::new());
    let mut row = |row: ValueRow| {
        said = values_json(&row, &names);
        ControlFlow::Break(())
    };
    predictor.values(sample, &mut row).map_err(|error| causes(&error))?;
    Ok(of_this_request(said))
}

/// What follows these tokens.
fn after(predictor: &mut Predictor, tokens: &[u32], top_k: usize) -> Result<Value, String> {
    let said = predictor.follow(tokens).map_err(|error| causes(&error))?;
    Ok(answer(predictor, &said, top_k))
}

fn answer(predictor: &Predictor, said: &Row, top_k: usize) -> Value {
    of_this_request(json_line(said, &Names::new(predictor.names(), Vec::new()), top_k))
}

/// Without the number of the sample: there is one.
fn of_this_request(mut answer: Value) -> Value {
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("sample");
    }
    answer
}
