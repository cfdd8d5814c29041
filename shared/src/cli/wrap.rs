//! Text in lines of a terminal, broken between words.

/// The text in lines of at most this number of columns, where words are shorter than that; all lines but the first begin with
/// `indent` spaces. Without columns, as in a file, it stays one line.
#[must_use]
pub fn wrapped(text: &str, columns: Option<usize>, indent: usize) -> String {
    let Some(columns) = columns.filter(|&columns| text.chars().count() > columns) else {
        return text.to_owned();
    };
    let (mut lines, mut used) = (String::new(), 0);
    // What is before the first word, as in a table, stays.
    let start = text.len() - text.trim_start().len();
    for word in text[start..].split(' ') {
        let length = word.chars().count();
        if lines.is_empty() {
            lines.push_str(&text[..start]);
            used = start;
        } else if used + 1 + length > columns {
            lines.truncate(lines.trim_end_matches(' ').len());
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = indent;
        } else {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_what_follows_is_indented() {
        let text = "not yet: the operator has to approve this device first";
        assert_eq!(wrapped(text, None, 2), text);
        assert_eq!(wrapped(text, Some(54), 2), text);
        assert_eq!(
            wrapped(text, Some(24), 2),
            "not yet: the operator\n  has to approve this\n  device first"
        );
        assert_eq!(
            wrapped("ok       disk   2 GB are free", Some(20), 16),
            "ok       disk   2 GB\n                are\n                free"
        );
        assert_eq!(wrapped("   -> empty it now", Some(14), 6), "   -> empty it\n      now");
        let key = "c".repeat(64);
        assert_eq!(wrapped(&format!("a {key}"), Some(20), 2), format!("a\n  {key}"), "a word is never cut");
    }
}
