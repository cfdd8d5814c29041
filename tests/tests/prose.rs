//! The words of documentation, comments and messages: none of `tests/words.txt` is used.

use std::fs;
use std::path::{Path, PathBuf};

struct Word {
    text: String,
    instead: String,
}

fn words(list: &str) -> Vec<Word> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (text, instead) = line.split_once(" = ").unwrap_or_else(|| panic!("no ` = ` in {line:?}"));
            Word { text: text.trim().to_owned(), instead: instead.trim().to_owned() }
        })
        .collect()
}

/// Whether `text`, in lower case, contains `word` as whole words. A `{` before it makes it a variable in a format string.
fn contains(text: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        !text[..start].ends_with(part_of_word)
            && !text[..start].ends_with('{')
            && !text[start + word.len()..].starts_with(part_of_word)
    })
}

/// A Rust source file with everything but comments and string literals replaced by blanks.
fn prose_of_rust(source: &str) -> String {
    #[derive(Clone, Copy)]
    enum Inside {
        Code,
        Comment,
        Text,
        /// A raw string, and the number of `#` that end it.
        Raw(usize),
    }
    let chars: Vec<char> = source.chars().collect();
    let mut inside = Inside::Code;
    let mut prose = String::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        let hashes = rest.iter().skip(1).take_while(|c| **c == '#').count();
        // Characters that are skipped beside this one.
        let mut skipped = 0;
        let was = inside;
        match inside {
            Inside::Code => match c {
                '/' if rest.starts_with(&['/', '/']) => inside = Inside::Comment,
                'r' if rest.get(1 + hashes) == Some(&'"') => {
                    (inside, skipped) = (Inside::Raw(hashes), 1 + hashes);
                }
                '"' => inside = Inside::Text,
                '\'' if rest.get(2) == Some(&'\'') => skipped = 2,
                '\'' if rest.get(1) == Some(&'\\') => skipped = 3,
                _ => {}
            },
            Inside::Comment if c == '\n' => inside = Inside::Code,
            Inside::Text if c == '\\' && rest.get(1) != Some(&'\n') => skipped = 1,
            Inside::Text if c == '"' => inside = Inside::Code,
            Inside::Raw(end) if c == '"' && hashes >= end => inside = Inside::Code,
            Inside::Comment | Inside::Text | Inside::Raw(_) => {}
        }
        let blank = matches!(was, Inside::Code) && c != '\n' || skipped > 0;
        prose.push(if blank { ' ' } else { c });
        at += 1 + skipped;
    }
    prose
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "runs" {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn documentation_comments_and_messages_use_plain_words() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let words = words(&fs::read_to_string(top.join("tests/words.txt")).unwrap());
    let mut paths = Vec::new();
    files(top, &mut paths);
    paths.sort();
    let mut findings = Vec::new();
    for path in paths {
        let name = path.strip_prefix(top).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let prose = if name.extension().unwrap() == "rs" { prose_of_rust(&text) } else { text };
        for (number, line) in (1..).zip(prose.lines()) {
            let line = line.to_lowercase();
            for word in words.iter().filter(|word| contains(&line, &word.text)) {
                findings.push(format!("{}:{number}: `{}`: {}", name.display(), word.text, word.instead));
            }
        }
    }
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn code_is_not_read_as_prose() {
    let source =
        "let code = 'x'; // a comment\nf(\"a \\\"text\\\"\", r#\"raw \"text\"\"#, '\"', '\\'', \"end\");\n";
    let prose = prose_of_rust(source);
    let words: Vec<&str> = prose.split_whitespace().collect();
    assert_eq!(words, ["/", "a", "comment", "a", "text", "\"", "raw", "\"text\"\"", "end\""], "{prose:?}");
}
