//! Python source: names, literals, and text that comes from elsewhere.
//!
//! Names of layers and classes come from files and from peers. They stand in the source as identifiers, as escaped literals, or
//! with everything replaced that could end a documentation string.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The longest line.
pub(super) const COLUMNS: usize = 110;

/// Words that cannot be names, and attributes of `nn.Sequential`, which its modules cannot be called. Those that begin with
/// `register_`, `named_` or `load_` are found by that.
const TAKEN: &[&str] = &[
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "T_destination",
    "add_module",
    "append",
    "apply",
    "bfloat16",
    "buffers",
    "call_super_init",
    "children",
    "compile",
    "cpu",
    "cuda",
    "double",
    "dump_patches",
    "eval",
    "extend",
    "extra_repr",
    "float",
    "forward",
    "get_buffer",
    "get_extra_state",
    "get_parameter",
    "get_submodule",
    "half",
    "insert",
    "ipu",
    "modules",
    "mtia",
    "parameters",
    "pop",
    "requires_grad_",
    "set_extra_state",
    "set_submodule",
    "share_memory",
    "state_dict",
    "to",
    "to_empty",
    "train",
    "training",
    "type",
    "xpu",
    "zero_grad",
];

/// Names in one scope, each given once.
#[derive(Debug, Default)]
pub(super) struct Scope {
    given: BTreeSet<String>,
}

impl Scope {
    /// The identifier for a layer's name: dashes become underscores, and what else is in the way is avoided.
    pub(super) fn name(&mut self, name: &str) -> String {
        let mut identifier = name.replace('-', "_");
        // Two underscores in front have a meaning of their own in classes.
        if !identifier.starts_with(|first: char| first.is_ascii_alphabetic()) {
            identifier.insert_str(0, "layer_");
        }
        let taken = ["register_", "named_", "load_"].iter().any(|prefix| identifier.starts_with(prefix));
        if taken || TAKEN.contains(&identifier.as_str()) {
            identifier.push_str("_layer");
        }
        if self.given.insert(identifier.clone()) {
            return identifier;
        }
        self.numbered(&format!("{identifier}_"), 2)
    }

    /// `stem` with the first number, from `first`, that gives a name that is still free.
    pub(super) fn numbered(&mut self, stem: &str, first: usize) -> String {
        let names = (first..).map(|number| format!("{stem}{number}"));
        let mut free = names.filter(|name| !self.given.contains(name));
        let name = free.next().expect("there are more numbers than names");
        self.given.insert(name.clone());
        name
    }
}

/// Whether a module of this name can be imported.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
        && !TAKEN[..35].contains(&name)
}

/// A string literal.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            // Beside control characters those that change the direction of writing, so that the source reads as it runs.
            character
                if character.is_control() || "\u{ad}\u{feff}".contains(character) || steers(character) =>
            {
                let _ = write!(literal, "\\u{:04x}", u32::from(character));
            }
            character => literal.push(character),
        }
    }
    literal.push('"');
    literal
}

/// Whether a character breaks lines or changes the direction of writing.
fn steers(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text for a comment or a documentation string, where it must not end either.
pub(super) fn plain(text: &str) -> String {
    let usual = |character: char| character.is_ascii_alphanumeric() || " ._-+,:/()".contains(character);
    let plain: String =
        text.chars().map(|character| if usual(character) { character } else { '_' }).collect();
    plain.chars().take(60).collect()
}

/// A tuple of expressions, on as many lines as it takes.
pub(super) fn tuple(items: &[String]) -> String {
    let line = items.join(", ");
    let comma = if items.len() == 1 { "," } else { "" };
    if line.len() + 20 <= COLUMNS {
        return format!("({line}{comma})");
    }
    let mut text = String::from("(\n");
    let mut column = 0;
    for item in items {
        let width = item.chars().count() + 2;
        if column > 0 && 4 + column + width > COLUMNS {
            text.push('\n');
            column = 0;
        }
        let _ = write!(text, "{}{item},", if column == 0 { "    " } else { " " });
        column += width;
    }
    text.push_str("\n)");
    text
}

/// A shape as a tuple: `(3, 32, 32)`.
pub(super) fn shape(shape: &[usize]) -> String {
    tuple(&shape.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// A documentation string of these paragraphs at this depth, broken into lines.
pub(super) fn documentation(depth: usize, paragraphs: &[String]) -> String {
    let margin = " ".repeat(4 * depth);
    let mut lines = Vec::new();
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        // The quotes stand on the first line.
        let mut line = if number == 0 { format!("{margin}\"\"\"") } else { margin.clone() };
        for word in paragraph.split(' ') {
            let begins = line.trim_start().trim_start_matches('"').is_empty();
            if !begins && line.chars().count() + 1 + word.chars().count() + 3 > COLUMNS {
                lines.push(std::mem::replace(&mut line, margin.clone()));
            } else if !begins {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    let end = if lines.len() == 1 { String::new() } else { format!("\n{margin}") };
    format!("{}{end}\"\"\"\n", lines.join("\n"))
}

/// One definition (`def` or `class`) of a file of them, which stand two empty lines apart.
///
/// # Panics
/// If the file has no such definition.
pub(super) fn definition(file: &'static str, name: &str) -> &'static str {
    let begins = |text: &&str| {
        let rest = text.strip_prefix("def ").or_else(|| text.strip_prefix("class "));
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(['(', ':']))
    };
    file.split("\n\n\n").map(str::trim).find(begins).expect("every definition that is named is in its file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_and_each_is_given_once() {
        let mut scope = Scope::default();
        let named = ["conv1", "a-b", "a_b", "class", "train", "register_hook", "1", "_x", "a_b_2"];
        let given = named.map(|name| scope.name(name));
        let expected = [
            "conv1",
            "a_b",
            "a_b_2",
            "class_layer",
            "train_layer",
            "register_hook_layer",
            "layer_1",
            "layer__x",
        ];
        assert_eq!(given[..8], expected);
        assert_eq!(given[8], "a_b_2_2");
        assert_eq!(scope.numbered("relu", 1), "relu1");
        assert_eq!(scope.numbered("relu", 1), "relu2");
        assert!(is_identifier("my_net2") && !is_identifier("2nn") && !is_identifier("my-net"));
        assert!(!is_identifier("yield") && !is_identifier(""));
    }

    #[test]
    fn no_text_ends_its_literal_or_its_comment() {
        assert_eq!(literal("a\"\\\n\u{1b}ü\u{202e}"), "\"a\\\"\\\\\\n\\u001bü\\u202e\"");
        assert_eq!(plain("x\"\"\"\nimport os \\"), "x____import os _");
    }

    #[test]
    fn long_lines_are_broken() {
        assert_eq!(shape(&[80]), "(80,)");
        let names: Vec<String> = (0..40).map(|number| literal(&format!("class {number}"))).collect();
        let text = tuple(&names) + &documentation(1, &["word ".repeat(60), "end".to_owned()]);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(documentation(0, &["one line".to_owned()]), "\"\"\"one line\"\"\"\n");
    }
}
