//! Layers as a configuration for people.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::read::PARTS;

/// The lines of complete layers below `[model]`: a line a layer.
pub(in crate::config) fn document(layers: &Table) -> String {
    let mut text = String::new();
    for part in PARTS {
        let Some(Value::Array(list)) = layers.get(part).filter(|part| part.as_array() != Some(&Vec::new()))
        else {
            let _ = writeln!(text, "layers.{part} = []");
            continue;
        };
        let _ = writeln!(text, "layers.{part} = [");
        for layer in list {
            lines(layer, 1, &mut text);
        }
        text.push_str("]\n");
    }
    text
}

/// The layers that have lists of layers, and the names of these.
const BLOCKS: [(&str, &[&str]); 2] = [("residual", &["body", "shortcut"]), ("squeeze-excite", &["body"])];

/// A layer at this depth of blocks. Lines break in lists alone, as TOML wants it.
fn lines(layer: &Value, depth: usize, text: &mut String) {
    let indent = "    ".repeat(depth);
    let block =
        BLOCKS.iter().find_map(|(kind, branches)| Some((kind, branches, layer.get(kind)?.as_table()?)));
    let Some((kind, branches, block)) = block else {
        let _ = writeln!(text, "{indent}{layer},");
        return;
    };
    let _ = write!(text, "{indent}{{ {kind} = {{ ");
    for (position, branch) in branches.iter().enumerate() {
        let end = if position + 1 == branches.len() { " } },\n" } else { ", " };
        let _ = match block.get(*branch).and_then(Value::as_array) {
            Some(list) if !list.is_empty() => {
                let _ = writeln!(text, "{branch} = [");
                for layer in list {
                    lines(layer, depth + 1, text);
                }
                write!(text, "{indent}]{end}")
            }
            _ => write!(text, "{branch} = []{end}"),
        };
    }
}
