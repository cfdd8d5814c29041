//! Patterns of names of tensors: `*` stands for any characters, dots as well.

/// What the stars of a pattern stand for in a name, each as short as it can be; `None` if the name is none of the pattern's.
pub(crate) fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let Some((literal, rest)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let name = name.strip_prefix(literal)?;
    let lengths = (0..=name.len()).filter(|&length| name.is_char_boundary(length));
    lengths.into_iter().find_map(|length| {
        let (star, after) = name.split_at(length);
        let mut stars = captures(rest, after)?;
        stars.insert(0, star);
        Some(stars)
    })
}

/// Whether one of the patterns stands for a name.
pub(crate) fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| models::architecture::matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_as_short_as_they_can_be() {
        for (pattern, name, stars) in [
            ("head.*", "head.fc.weight", Some(vec!["fc.weight"])),
            ("*.*", "extractor.features-0.weight", Some(vec!["extractor", "features-0.weight"])),
            ("*.blocks-*-attn.*", "extractor.blocks-11-attn.bias", Some(vec!["extractor", "11", "bias"])),
            ("*", "", Some(vec![""])),
            ("a*b", "acbab", Some(vec!["cba"])),
            ("head", "head", Some(vec![])),
            ("head", "heads", None),
            ("*.weight", "head.fc.bias", None),
            ("\u{e4}*", "\u{e4}\u{f6}", Some(vec!["\u{f6}"])),
        ] {
            assert_eq!(captures(pattern, name), stars, "{pattern} {name}");
        }
        assert!(any(&["x".to_owned(), "head.*".to_owned()], "head.fc.weight"));
    }
}
