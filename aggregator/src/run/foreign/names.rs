//! Maps from our names of tensors to those of another library: data files, of which three are built in.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::pattern::{any, captures};
use crate::config::LIBRARIES;
use crate::storage::FileLayer;

/// The maps that are built in, in the order of [`LIBRARIES`].
const MAPS: [&str; LIBRARIES.len()] =
    [include_str!("torchvision.toml"), include_str!("timm.toml"), include_str!("transformers.toml")];

/// How tensors are called in a file of another library.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NameMap {
    /// What stands there for a `-` in the name of a layer.
    #[serde(default)]
    dash: Option<String>,
    /// Patterns of tensors there that nothing is lost without.
    #[serde(default)]
    ignore: Vec<String>,
    /// Our pattern, and what a tensor of such a name is called there; of several names, the tensors lie one after the other. The
    /// first pattern that fits decides.
    rename: Vec<Vec<String>>,
}

/// Why names cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// There is no such map.
    #[error(
        "model.from.names = {name:?} is neither {} nor a file that can be read ({reason}); give one of them, or the path of a \
         names.toml",
        LIBRARIES.join(", ")
    )]
    Absent {
        /// What was given.
        name: String,
        /// Why it is no file.
        reason: String,
    },
    /// It is not a map.
    #[error("{} is no map of names: {reason}; see the manual's page on a model of your own", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl NameMap {
    /// The map that is built in under this name, or that of a file.
    pub(super) fn find(files: &dyn FileLayer, name: &str) -> Result<Self, NamesError> {
        let file = PathBuf::from(name);
        if let Some(at) = LIBRARIES.iter().position(|library| *library == name) {
            return Self::parse(&file, MAPS[at]);
        }
        let absent =
            |error: std::io::Error| NamesError::Absent { name: name.to_owned(), reason: error.to_string() };
        let mut text = String::new();
        files.open(&file).map_err(absent)?.read_to_string(&mut text).map_err(absent)?;
        Self::parse(&file, &text)
    }

    fn parse(file: &Path, text: &str) -> Result<Self, NamesError> {
        let malformed = |reason: String| NamesError::Malformed { file: file.to_owned(), reason };
        let map: Self = toml::from_str(text).map_err(|error| malformed(error.message().to_owned()))?;
        for rule in &map.rename {
            let [ours, theirs @ ..] = rule.as_slice() else {
                return Err(malformed("an empty list in `rename`".to_owned()));
            };
            if theirs.is_empty() {
                return Err(malformed(format!("`rename` says of {ours:?} not what it is called there")));
            }
            let stars = ours.matches('*').count();
            let wrong =
                theirs.iter().flat_map(|name| references(name)).find(|&star| star == 0 || star > stars);
            if let Some(wrong) = wrong {
                return Err(malformed(format!("${wrong} in the names for {ours:?} refers to no star of it")));
            }
        }
        Ok(map)
    }

    /// What a tensor of ours is called there; several names if its parts lie one after the other there. `None` if the map has no
    /// name for it.
    pub(super) fn theirs(&self, ours: &str) -> Option<Vec<String>> {
        self.rename.iter().find_map(|rule| {
            let (pattern, names) = rule.split_first()?;
            let stars = captures(pattern, ours)?;
            let stars: Vec<String> = stars.into_iter().map(|star| self.spelled(star)).collect();
            Some(names.iter().map(|name| filled(name, &stars)).collect())
        })
    }

    /// Whether nothing is lost without this tensor of theirs.
    pub(super) fn ignores(&self, theirs: &str) -> bool {
        any(&self.ignore, theirs)
    }

    /// A part of our name as it is spelled there. `PyTorch`'s parameters have `_` where ours have `-`, as in `running_mean`.
    fn spelled(&self, part: &str) -> String {
        let (layer, parameter) = match part.rsplit_once('.') {
            Some((layer, parameter)) => (Some(layer), parameter),
            None if ["running-mean", "running-var"].contains(&part) => (None, part),
            None => (Some(part), ""),
        };
        let layer = layer.map(|layer| match &self.dash {
            Some(dash) => layer.replace('-', dash),
            None => layer.to_owned(),
        });
        match (layer, parameter) {
            (Some(layer), "") => layer,
            (Some(layer), parameter) => format!("{layer}.{}", parameter.replace('-', "_")),
            (None, parameter) => parameter.replace('-', "_"),
        }
    }
}

/// The numbers of the stars that a name refers to.
fn references(name: &str) -> Vec<usize> {
    name.split('$').skip(1).map(|after| digit(after).unwrap_or(0)).collect()
}

fn digit(text: &str) -> Option<usize> {
    text.chars().next()?.to_digit(10).map(|digit| digit as usize)
}

/// A name with the texts of its stars.
fn filled(name: &str, stars: &[String]) -> String {
    let mut pieces = name.split('$');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // References were checked when the map was read.
        let star = digit(piece).and_then(|star| stars.get(star.checked_sub(1)?));
        filled.push_str(star.map_or("", String::as_str));
        filled.push_str(piece.get(1..).unwrap_or_default());
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in(name: &str) -> NameMap {
        NameMap::find(&crate::storage::Disk, name).expect("built in")
    }

    #[test]
    fn names_are_those_of_the_libraries() {
        let (torchvision, timm, transformers) =
            (built_in("torchvision"), built_in("timm"), built_in("transformers"));
        for (map, ours, theirs) in [
            (&torchvision, "extractor.features-0-1.running-mean", vec!["features.0.1.running_mean"]),
            (&torchvision, "extractor.layer1-0-conv1.weight", vec!["layer1.0.conv1.weight"]),
            (&torchvision, "head.fc.bias", vec!["fc.bias"]),
            (&timm, "extractor.cls_token.weight", vec!["cls_token"]),
            (&timm, "extractor.blocks-11-attn-qkv.bias", vec!["blocks.11.attn.qkv.bias"]),
            (
                &transformers,
                "extractor.blocks-3-norm1.weight",
                vec!["vit.encoder.layer.3.layernorm_before.weight"],
            ),
            (
                &transformers,
                "extractor.blocks-3-attn-qkv.bias",
                vec![
                    "vit.encoder.layer.3.attention.attention.query.bias",
                    "vit.encoder.layer.3.attention.attention.key.bias",
                    "vit.encoder.layer.3.attention.attention.value.bias",
                ],
            ),
            (
                &transformers,
                "extractor.layer4-0-bn3.running-var",
                vec!["resnet.encoder.stages.3.layers.0.layer.2.normalization.running_var"],
            ),
            (
                &transformers,
                "extractor.layer2-0-downsample-1.bias",
                vec!["resnet.encoder.stages.1.layers.0.shortcut.normalization.bias"],
            ),
            (&transformers, "extractor.conv1.weight", vec!["resnet.embedder.embedder.convolution.weight"]),
            (&transformers, "head.fc.bias", vec!["classifier.1.bias"]),
        ] {
            assert_eq!(map.theirs(ours).expect("it has a name for it"), theirs, "{ours}");
        }
        assert!(torchvision.ignores("bn1.num_batches_tracked") && !torchvision.ignores("bn1.weight"));
        assert_eq!(transformers.theirs("extractor.unheard-of.weight"), None);
    }

    #[test]
    fn mistakes_in_a_map_are_named() {
        for (text, said) in [
            ("rename = [['a.*', 'b.$2']]", "$2 in the names for \"a.*\" refers to no star"),
            ("rename = [['a.*']]", "says of \"a.*\" not what"),
            ("rename = [[]]", "an empty list"),
            ("renames = []", "unknown field `renames`"),
            ("dash = 3\nrename = []", "invalid type"),
        ] {
            let error = NameMap::parse(Path::new("names.toml"), text).expect_err(text).to_string();
            assert!(error.contains(said) && error.contains("names.toml"), "{error}");
        }
        let error = NameMap::find(&crate::storage::Disk, "torch-vision").expect_err("no file").to_string();
        assert!(error.contains("torchvision, timm, transformers"), "{error}");
    }
}
