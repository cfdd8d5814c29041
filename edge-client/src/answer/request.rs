//! One request, and its answer.

use std::ops::ControlFlow;
use std::sync::Arc;

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::cli::{Names, causes, json_line};
use shared::data::{Dataset, Inputs, Samples, View, images};

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
    /// The numbers of a sample.
    #[serde(default)]
    values: Option<Vec<f32>>,
    /// A PNG or JPEG in base64.
    #[serde(default)]
    image: Option<String>,
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
                "the request is no object with values or image, and perhaps id and top-k: {error}"
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
    let sample = match (request.values, request.image) {
        (Some(values), None) => features(predictor, values)?,
        (None, Some(text)) => {
            let bytes = BASE64
                .decode(text.as_bytes())
                .map_err(|error| format!("the image is not base64: {error}"))?;
            image(predictor, &bytes)?
        }
        _ => {
            return Err(
                "give either values, the numbers of a sample, or image, a PNG or JPEG in base64".to_owned()
            );
        }
    };
    about(predictor, sample, request.top_k.unwrap_or(1).max(1))
}

/// The shape of a sample before it is prepared.
fn shape(predictor: &Predictor) -> Vec<usize> {
    predictor
        .samples()
        .map_or_else(|| predictor.architecture().input.clone(), |samples| samples.shape.clone())
}

fn features(predictor: &Predictor, values: Vec<f32>) -> Result<Dataset, String> {
    if predictor.architecture().vocabulary().is_some() {
        return Err(
            "the model reads text, of which no single answer is asked: use edge-client predict".to_owned()
        );
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

fn about(predictor: &mut Predictor, sample: Dataset, top_k: usize) -> Result<Value, String> {
    let inputs = Inputs { dataset: sample, files: Vec::new() };
    let names = Names::of(predictor.class_names(), &inputs);
    let view = View::whole(Arc::new(inputs.dataset));
    let mut answer = Value::Null;
    let mut row = |row| {
        answer = json_line(&row, &names, top_k);
        ControlFlow::Continue(())
    };
    predictor.predict(&view, &mut row).map_err(|error| causes(&error))?;
    if let Some(answer) = answer.as_object_mut() {
        // There is one, of this request.
        answer.remove("sample");
    }
    Ok(answer)
}
