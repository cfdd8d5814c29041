//! The function `prepare`: bytes to numbers, the centre crop, normalisation.

use shared::data::Normalisation;

use super::Target;
use super::python::documentation;
use super::samples::Kind;
use super::script::{Script, spelled_shape};

pub(super) fn torch(script: &Script<'_>) -> String {
    function(script, "np.ndarray | torch.Tensor", "torch.Tensor")
}

pub(super) fn numpy(script: &Script<'_>) -> String {
    function(script, "np.ndarray", "np.ndarray")
}

fn function(script: &Script<'_>, takes: &str, gives: &str) -> String {
    let mut lines = vec![match script.target {
        Target::Torch => "x = torch.as_tensor(samples)".to_owned(),
        Target::Numpy => "x = np.asarray(samples)".to_owned(),
    }];
    if script.kind.is_tokens() {
        lines.extend(tokens(script));
    } else {
        lines.extend(numbers(script));
    }
    lines.push("return x".to_owned());
    let body = lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
    format!("def prepare(samples: {takes}) -> {gives}:\n{}{body}", about(script))
}

fn about(script: &Script<'_>) -> String {
    let (before, after) = (spelled_shape(&script.shape), spelled_shape(&script.subject.architecture().input));
    if script.kind.is_tokens() {
        let number = match positions(script) {
            Positions::Any => ", of any number of positions",
            Positions::UpTo => ", or of fewer positions",
            Positions::All => "",
        };
        let taken = format!("Tokens {before}{number}, or those of one sample, as the network takes them.");
        return documentation(1, &[taken]);
    }
    let one = if script.kind == Kind::Image && script.shape[0] == 1 {
        "or one of these, with or without the axis of the channel"
    } else {
        "or one of these"
    };
    let mut steps = vec!["Bytes become numbers from 0 to 1; other numbers are taken as they are.".to_owned()];
    if let Some((height, width, side)) = crop(script) {
        steps.push(format!("The centre of {side} x {side} pixels is cut out of {height} x {width}."));
    }
    match script.preparation.normalisation {
        Normalisation::None => {}
        Normalisation::Channels { .. } => {
            steps.push("Each channel is normalised by MEAN and DEVIATION.".to_owned());
        }
        Normalisation::Whiten => {
            steps.push(
                "Each sample is normalised by the mean and the deviation of its own values.".to_owned(),
            );
        }
    }
    documentation(
        1,
        &[format!("Samples {before}, {one}, as the network takes them, {after}."), steps.join(" ")],
    )
}

/// Height, width, and the side of the centre that is cut out, if one is.
fn crop(script: &Script<'_>) -> Option<(usize, usize, usize)> {
    let side = script.preparation.augmentation.random_crop as usize;
    let &[_, height, width] = &script.shape[..] else { return None };
    (side > 0).then_some((height, width, side))
}

/// Of how many positions the samples of a network of tokens are.
enum Positions {
    Any,
    /// As many as it knows, or fewer: what it says at a position does not depend on later ones.
    UpTo,
    /// As many as it knows.
    All,
}

fn positions(script: &Script<'_>) -> Positions {
    let sees_later = script.subject.architecture().looks_ahead() || !script.plan.is_sequence();
    match (script.plan.has_learned_positions(), sees_later) {
        (false, _) => Positions::Any,
        (true, false) => Positions::UpTo,
        (true, true) => Positions::All,
    }
}

fn tokens(script: &Script<'_>) -> Vec<String> {
    let vocabulary = script.subject.architecture().vocabulary().unwrap_or(0);
    let whole = match script.target {
        Target::Torch => "x = x.long()",
        Target::Numpy => "x = x.astype(np.int64)",
    };
    let mut lines = vec![
        whole.to_owned(),
        "if x.ndim == 1:".to_owned(),
        "    x = x[None]".to_owned(),
        "if x.ndim != 2 or x.shape[1] == 0:".to_owned(),
        "    raise ValueError(f\"samples are [n, t], and not {list(x.shape)}\")".to_owned(),
    ];
    let refused = match positions(script) {
        Positions::Any => None,
        Positions::UpTo => Some((">", "at most {SHAPE[0]}")),
        Positions::All => Some(("!=", "{SHAPE[0]}")),
    };
    if let Some((than, number)) = refused {
        lines.push(format!("if x.shape[1] {than} SHAPE[0]:"));
        let have = format!("samples have {number} positions, and not {{x.shape[1]}}");
        lines.push(format!("    raise ValueError(f\"{have}\")"));
    }
    lines.extend([
        format!("if x.min() < 0 or x.max() >= {vocabulary}:"),
        format!(
            "    raise ValueError(f\"tokens are from 0 to {}, and there are {{x.min()}} to {{x.max()}}\")",
            vocabulary.saturating_sub(1)
        ),
    ]);
    lines
}

fn numbers(script: &Script<'_>) -> Vec<String> {
    let (shape, torch) = (&script.shape, script.target == Target::Torch);
    let mut lines = vec![if torch {
        "x = x.float() / 255 if x.dtype == torch.uint8 else x.float()".to_owned()
    } else {
        "x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)".to_owned()
    }];
    let accepted = if script.kind == Kind::Image && shape[0] == 1 { "{SHAPE, SHAPE[1:]}" } else { "{SHAPE}" };
    lines.push(format!("if not {accepted} & {{tuple(x.shape), tuple(x.shape[1:])}}:"));
    lines.push(format!(
        "    raise ValueError(f\"samples are {}, and not {{list(x.shape)}}\")",
        spelled_shape(shape)
    ));
    lines.push("x = x.reshape(-1, *SHAPE)".to_owned());
    if let Some((height, width, side)) = crop(script) {
        let [top, left] = [height, width].map(|whole| (whole - side) / 2);
        lines.push(format!("x = x[:, :, {top}:{}, {left}:{}]", top + side, left + side));
    }
    let prepared = &script.subject.architecture().input;
    match script.preparation.normalisation {
        Normalisation::None => {}
        Normalisation::Channels { .. } => {
            // Against the axes behind that of the channels.
            let axes: String =
                ["-1"].into_iter().chain(prepared.iter().skip(1).map(|_| "1")).collect::<Vec<_>>().join(", ");
            lines.push(if torch {
                format!(
                    "mean, deviation = (torch.tensor(of, device=x.device).reshape({axes}) for of in (MEAN, DEVIATION))"
                )
            } else {
                format!("mean, deviation = (np.array(of, np.float32).reshape({axes}) for of in (MEAN, DEVIATION))")
            });
            lines.push("x = (x - mean) / deviation".to_owned());
        }
        Normalisation::Whiten => {
            let axes = super::python::shape(&(1..=prepared.len()).collect::<Vec<_>>());
            let least = format!("1 / (255 * {}**0.5)", prepared.iter().product::<usize>());
            if torch {
                lines.push(format!("mean = x.double().mean(dim={axes}, keepdim=True)"));
                lines.push(format!(
                    "deviation = x.double().std(dim={axes}, keepdim=True, unbiased=False).clamp(min={least})"
                ));
                lines.push("x = (x - mean.float()) / deviation.float()".to_owned());
            } else {
                lines.push(format!("mean = x.mean(axis={axes}, keepdims=True, dtype=np.float64)"));
                lines.push(format!("deviation = x.std(axis={axes}, keepdims=True, dtype=np.float64)"));
                lines.push(format!("deviation = np.maximum(deviation, {least})"));
                lines.push("x = (x - mean.astype(np.float32)) / deviation.astype(np.float32)".to_owned());
            }
        }
    }
    lines
}
