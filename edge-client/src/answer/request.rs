//! One request, and its answer.

use std::ops::ControlFlow;
use std::sync::Arc;

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::cli::{Names, causes, json_line};
use shared::data::{Dataset, Samples, View, images};
use shared::prediction::Row;

use crate::predict::Predictor;

/// The largest request, in bytes: room for a photograph in base64.
pub(super) const MAX_REQUEST: u64 = 32 << 20;

/// What is asked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Request {
    /// Comes back with the answer.
    #[serde(default)]
    id: Option<Value>,
    /// The numbers of a sample; of a text the numbers of its tokens.
    #[serde(default)]
    values: Option<Vec<f32>>,
    /// A PNG or JPEG in base64.
    #[serde(default)]
    image: Option<String>,
    /// The beginning of a text.
    #[serde(default)]
    text: Option<String>,
    /// How many classes are answered.
    #[serde(default)]
    top_k: Option<usize>,
}

/// The answer to a line: an object with the answer, or with what is wrong with the request as `error`.
pub(super) fn answer_line(predictor: &mut Predictor, line: &[u8]) -> Value {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => {
            return refusal(&format!(
                "the request is no object with values, image or text, and perhaps id and top-k: {error}"
            ));
        }
    };
    let id = request.id.clone();
    let mut answer = asked(predictor, request).unwrap_or_else(|reason| refusal(&reason));
    if let Some(id) = id {
        answer["id"] = id;
    }
    answer
}

/// The answer to an image.
pub(super) fn answer_image(predictor: &mut Predictor, bytes: &[u8]) -> Value {
    image(predictor, bytes)
        .and_then(|sample| about(predictor, sample, 1))
        .unwrap_or_else(|reason| refusal(&reason))
}

/// An answer that says what is wrong.
pub(super) fn refusal(reason: &str) -> Value {
    json!({ "error": reason })
}

fn asked(predictor: &mut Predictor, request: Request) -> Result<Value, String> {
    let top_k = request.top_k.unwrap_or(1).max(1);
    match (request.values, request.image, request.text) {
        (Some(values), None, None) if predictor.continues_text() => {
            let tokens = predictor.tokens_of(&values).map_err(|error| causes(&error))?;
            after(predictor, &tokens, top_k)
        }
        (Some(values), None, None) => {
            let sample = features(predictor, values)?;
            about(predictor, sample, top_k)
        }
        (None, Some(text), None) => {
            let bytes = BASE64
                .decode(text.as_bytes())
                .map_err(|error| format!("the image is not base64: {error}"))?;
            let sample = image(predictor, &bytes)?;
            about(predictor, sample, top_k)
        }
        (None, None, Some(text)) => {
            let tokens = predictor.tokens(&text).map_err(|error| causes(&error))?;
            after(predictor, &tokens, top_k)
        }
        _ => Err("give one of values, the numbers of a sample, image, a PNG or JPEG in base64, and text, the beginning of one"
            .to_owned()),
    }
}

/// The shape of a sample before it is prepared.
fn shape(predictor: &Predictor) -> Vec<usize> {
    predictor
        .samples()
        .map_or_else(|| predictor.architecture().input.clone(), |samples| samples.shape.clone())
}

fn features(predictor: &Predictor, values: Vec<f32>) -> Result<Dataset, String> {
    if predictor.architecture().predictions() != Ok(1) {
        return Err("the model answers at each position of a sequence, and not for one sample".to_owned());
    }
    let shape = shape(predictor);
    let (needed, found) = (shape.iter().product::<usize>(), values.len());
    if needed != found {
        let spelled = shared::shape::spelled(&shape);
        return Err(format!("the model takes {needed} values, of shape {spelled}, and these are {found}"));
    }
    Dataset::unlabelled(shape, Samples::Floats(values)).map_err(|error| causes(&error))
}

fn image(predictor: &Predictor, bytes: &[u8]) -> Result<Dataset, String> {
    images::read_bytes(bytes, Some(&shape(predictor))).map_err(|error| causes(&error))
}

/// What the model says about a sample.
fn about(predictor: &mut Predictor, sample: Dataset, top_k: usize) -> Result<Value, String> {
    let view = View::whole(Arc::new(sample));
    let mut said = None;
    let mut row = |row| {
        said = Some(row);
        ControlFlow::Break(())
    };
    predictor.predict(&view, &mut row).map_err(|error| causes(&error))?;
    let said = said.ok_or("internal error: a sample without an answer; please report this")?;
    Ok(answer(predictor, &said, top_k))
}

/// What follows these tokens.
fn after(predictor: &mut Predictor, tokens: &[u32], top_k: usize) -> Result<Value, String> {
    let said = predictor.follow(tokens).map_err(|error| causes(&error))?;
    Ok(answer(predictor, &said, top_k))
}

fn answer(predictor: &Predictor, said: &Row, top_k: usize) -> Value {
    let mut answer = json_line(said, &Names::new(predictor.names(), Vec::new()), top_k);
    if let Some(answer) = answer.as_object_mut() {
        // There is one, of this request.
        answer.remove("sample");
    }
    answer
}
