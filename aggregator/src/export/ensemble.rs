//! Ensembles: the members side by side, and the fusion of what they say.
//!
//! Informative fusion compares each sample with noise. Here it is that of the first sample that is asked about, so that a sample
//! gets the answer that `aggregator predict` has for it alone.

use std::fmt::Write as _;

use shared::aggregation::Weights;
use shared::algorithm::{Answering, Fusion, Head};
use shared::ensemble::fusion::LEAST_PROBABILITY;

use super::python::{documentation, shape};
use super::script::{Script, representation_called, spelled_shape};
use super::{Subject, Target};
use crate::ensemble::Bundle;

/// Whether features are compared by their directions.
pub(super) fn takes_cosines(script: &Script<'_>) -> bool {
    matches!(script.subject, Subject::Ensemble(_, fusion) if fusion.is_of_features())
}

/// The class, if it is an ensemble.
pub(super) fn torch(script: &Script<'_>) -> Option<String> {
    let Subject::Ensemble(bundle, fusion) = script.subject else { return None };
    let (members, classes) = (bundle.manifest.members.len(), bundle.manifest.architecture.classes);
    let mut text = format!(
        "class Ensemble(nn.Module):\n{}\n    \
         def __init__(self) -> None:\n        \
         super().__init__()\n        \
         self.members = nn.ModuleList(Network() for _ in range({members}))\n",
        about(script, bundle, fusion)
    );
    let noise = [&[1], &bundle.manifest.architecture.input[..]].concat();
    for (name, axes) in
        [("prototypes", vec![classes, bundle.dimensions()]), ("noise", noise), ("shares", vec![members])]
    {
        if buffers(fusion).contains(&name) {
            let _ = writeln!(text, "        self.register_buffer(\"{name}\", torch.zeros{})", shape(&axes));
        }
    }
    let _ = write!(
        text,
        "\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n{}{}",
        script.about_forward(),
        statements(script, fusion, bundle.manifest.answering)
    );
    Some(text)
}

/// The class, if it is an ensemble.
pub(super) fn numpy(script: &Script<'_>) -> Option<String> {
    let Subject::Ensemble(bundle, fusion) = script.subject else { return None };
    let members = bundle.manifest.members.len();
    let mut text = format!(
        "class Ensemble:\n{}\n    \
         def __init__(self, tensors: dict[str, np.ndarray]) -> None:\n        \
         parts = [by_layer(tensors, f\"members.{{member}}.\") for member in range({members})]\n        \
         self.members = [Network(weights) for weights in parts]\n",
        about(script, bundle, fusion)
    );
    for name in buffers(fusion) {
        let _ = writeln!(text, "        self.{name} = tensors[\"{name}\"]");
    }
    let _ = write!(
        text,
        "\n    def __call__(self, x: np.ndarray) -> np.ndarray:\n{}{}",
        script.about_forward(),
        statements(script, fusion, bundle.manifest.answering)
    );
    Some(text)
}

/// The tensors beside those of the members.
fn buffers(fusion: Fusion) -> &'static [&'static str] {
    match fusion {
        Fusion::Informative => &["prototypes", "noise"],
        Fusion::Size => &["prototypes", "shares"],
        Fusion::Uniform => &["prototypes"],
        Fusion::Logits | Fusion::Probabilities => &["shares"],
    }
}

fn about(script: &Script<'_>, bundle: &Bundle, fusion: Fusion) -> String {
    let members = bundle.manifest.members.len();
    if bundle.manifest.answering.head == Head::Classifier {
        let weighted = match bundle.manifest.weights {
            Weights::Uniform => "",
            _ => ", weighted by their numbers of samples",
        };
        let about = [
            format!("{members} networks side by side (Guha et al., 2019)."),
            format!("Their {fusion} are averaged{weighted}."),
        ];
        return documentation(1, &about);
    }
    let says = match fusion {
        Fusion::Informative => {
            "Features are weighted by how far they are from those of noise, `1 - cos(F(x), F(noise))`; the class is that of the nearest \
             prototype."
        }
        Fusion::Size => {
            "Features are weighted by the members' numbers of samples; the class is that of the nearest prototype."
        }
        Fusion::Uniform => "Features are averaged; the class is that of the nearest prototype.",
        Fusion::Logits | Fusion::Probabilities => {
            "The members' own answers are averaged, weighted by their numbers of samples."
        }
    };
    let features = script.plan.parts.iter().rev().nth(1).map_or(&[][..], |part| &part.output);
    documentation(
        1,
        &[
            format!("{members} networks side by side (Zeng et al., ICML 2025)."),
            format!("{says} Features are {}.", spelled_shape(features)),
        ],
    )
}

/// The forward pass.
fn statements(script: &Script<'_>, fusion: Fusion, answering: Answering) -> String {
    let Answering { temperature, head, .. } = answering;
    let torch = script.target == Target::Torch;
    let features = |x: &str| representation_called(script.plan, "member", x);
    let mut lines = vec!["fused, total = 0, 0".to_owned()];
    let in_turn = match fusion {
        Fusion::Size | Fusion::Logits | Fusion::Probabilities => {
            "for member, share in zip(self.members, self.shares):"
        }
        Fusion::Informative | Fusion::Uniform => "for member in self.members:",
    };
    lines.push(in_turn.to_owned());
    if head == Head::Prototypes {
        lines.push(format!("    features = {}", features("x")));
    }
    let (weight, of) = match fusion {
        Fusion::Informative => {
            let found = format!("1 - cosine(features, {})", features("self.noise"));
            lines.push(if torch {
                format!("    share = ({found}).clamp(min=1e-6)")
            } else {
                format!("    share = np.maximum({found}, 1e-6)")
            });
            ("share", "features")
        }
        Fusion::Size => ("share", "features"),
        Fusion::Uniform => ("1", "features"),
        Fusion::Probabilities => {
            let answers = if torch { "member(x).softmax(dim=-1)" } else { "softmax(member(x))" };
            lines.push(format!("    answers = {answers}"));
            ("share", "answers")
        }
        Fusion::Logits if head == Head::Classifier => {
            lines.push("    answers = member(x)".to_owned());
            ("share", "answers")
        }
        Fusion::Logits => {
            lines.push(if torch {
                "    lengths = features.norm(dim=1, keepdim=True).clamp(min=1e-8)".to_owned()
            } else {
                "    lengths = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-8)".to_owned()
            });
            lines.push("    answers = member.head(features) / lengths".to_owned());
            ("share", "answers")
        }
    };
    lines.push(if weight == "1" {
        format!("    fused = fused + {of}")
    } else {
        format!("    fused = fused + {weight} * {of}")
    });
    lines.push(format!("    total = total + {weight}"));
    lines.push(match fusion {
        Fusion::Logits => "return fused / total".to_owned(),
        Fusion::Probabilities if torch => {
            format!("return (fused / total).clamp(min={LEAST_PROBABILITY:e}).log()")
        }
        Fusion::Probabilities => format!("return np.log(np.maximum(fused / total, {LEAST_PROBABILITY:e}))"),
        _ => format!("return cosine(fused / total, self.prototypes) / {temperature:?}"),
    });
    lines.iter().map(|line| format!("        {line}\n")).collect()
}
