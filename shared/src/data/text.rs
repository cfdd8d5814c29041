//! Text by role, for next-character prediction (`McMahan` et al. 2017, section 3, on the works of Shakespeare).
//!
//! The file is a play as plain text in UTF-8. A line `NAME:` at the beginning of the file or after an empty line names the
//! role that speaks the following lines; empty lines are skipped. Lines before the first such line belong to a role without
//! a name, so a text without roles has one role.
//!
//! As in the paper, the first 80 % of a role's lines are the training split and the last 20 %, at least one line, the test
//! split; a role with a single line is skipped. The lines of a role, each with its line feed, are joined and cut into
//! windows of [`WINDOW`] characters; each character is labelled with the one after it. The last window is moved back to end
//! with the text and overlaps the one before. A role with fewer characters in a split than a window and its last label is
//! skipped there.
//!
//! The vocabulary is the same for every text, so that devices need not agree on one: line feed, the 95 printable
//! characters of ASCII, and one token for all other characters, [`VOCABULARY`] in all.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::error::{FormatError, check_directory};
use super::format::{About, Evidence, SampleFormat, read_file};
use super::{DataError, Dataset, ReadOptions, Samples, Split};

/// Characters of a sample: the unroll length of the paper's LSTM.
pub const WINDOW: usize = 80;

/// Number of different tokens.
pub const VOCABULARY: usize = 97;

/// The largest text, in bytes: its windows take about six times as much memory.
pub const MAX_TEXT: u64 = 256 << 20;

/// The number of a character in the vocabulary: 0 for a line feed, 1 to 95 for the characters from space to tilde, 96 for
/// any other.
#[must_use]
pub fn token(character: char) -> u16 {
    match character {
        '\n' => 0,
        ' '..='~' => character as u16 - ' ' as u16 + 1,
        _ => VOCABULARY as u16 - 1,
    }
}

/// What people call a token: the character, or a word for what cannot be seen.
#[must_use]
pub fn token_name(token: u16) -> String {
    match token {
        0 => "line feed".to_owned(),
        1 => "space".to_owned(),
        2..=95 => char::from(b' ' + (token as u8 - 1)).to_string(),
        _ => "other".to_owned(),
    }
}

/// What people call each token, in the order of their numbers.
#[must_use]
pub fn token_names() -> Vec<String> {
    (0..VOCABULARY as u16).map(token_name).collect()
}

/// The files in `directory` whose names end in `.txt`, sorted by name.
pub fn find(directory: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = std::fs::read_dir(directory).map_err(|error| DataError::from(error).in_file(directory))?;
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| DataError::from(error).in_file(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "txt") && path.is_file() {
            texts.push(path);
        }
    }
    texts.sort();
    Ok(texts)
}

/// One `.txt` file in a folder. [`Dataset::authors`] are the roles, in the order in which they first speak.
#[derive(Debug)]
pub struct Text;

impl SampleFormat for Text {
    fn about(&self) -> About {
        let files = "one .txt file: lines NAME: say who speaks the lines that follow";
        About { name: "text by role", help: ("text", files), evidence: Evidence::Weak }
    }

    fn signature(&self, _split: Split) -> String {
        "one .txt file".to_owned()
    }

    fn is_in(&self, directory: &Path, _split: Split) -> Result<bool, DataError> {
        Ok(!find(directory)?.is_empty())
    }

    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        if options.labels.is_none() {
            return Err(DataError::LabelsInside { format: self.about().name }.in_file(directory));
        }
        options.check_plain(directory, self.about().name)?;
        check_directory(directory)?;
        let texts = find(directory)?;
        let [path] = &texts[..] else {
            return Err(TextError::NotOne { found: texts.len() }.in_file(directory));
        };
        read(path).and_then(|text| samples(&text, split)).map_err(|error| error.in_file(path))
    }
}

/// Errors of texts.
#[derive(Debug, Error)]
enum TextError {
    #[error("holds {found} files whose names end in .txt; put one text into it")]
    NotOne { found: usize },
    #[error("is not UTF-8 text: byte {at} begins no character")]
    NotUtf8 { at: usize },
    #[error(
        "no role says more than {window} characters in this split, which a sample takes: the text is too short"
    )]
    Short { window: usize },
}

impl FormatError for TextError {}

fn read(path: &Path) -> Result<String, DataError> {
    let text = String::from_utf8(read_file(path, MAX_TEXT)?)
        .map_err(|error| TextError::NotUtf8 { at: error.utf8_error().valid_up_to() })?;
    // Editors of Windows write a mark of the encoding before the text, which is no part of the first role's name.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The windows of one split of a text.
///
/// # Errors
/// [`DataError`] if no role says enough for one.
fn samples(text: &str, split: Split) -> Result<Dataset, DataError> {
    let (mut tokens, mut labels, mut authors) = (Vec::new(), Vec::new(), Vec::new());
    let mut author = 0;
    for lines in roles(text) {
        if lines.len() < 2 {
            continue;
        }
        let (train, test) = lines.split_at(lines.len() - lines.len().div_ceil(5));
        let lines = if split == Split::Train { train } else { test };
        let spoken: Vec<u16> = lines.iter().flat_map(|line| line.chars().chain(['\n'])).map(token).collect();
        // Every window needs one more character, for its last label.
        let Some(last) = spoken.len().checked_sub(WINDOW + 1) else { continue };
        for start in (0..last).step_by(WINDOW).chain([last]) {
            tokens.extend_from_slice(&spoken[start..start + WINDOW]);
            labels.extend(spoken[start + 1..=start + WINDOW].iter().map(|&token| u32::from(token)));
            authors.push(author);
        }
        author += 1;
    }
    if authors.is_empty() {
        return Err(TextError::Short { window: WINDOW }.into());
    }
    Ok(Dataset::labelled(vec![WINDOW], Samples::Tokens(tokens), labels, VOCABULARY)?.by_authors(authors))
}

/// The lines of each role, in the order in which they first speak.
fn roles(text: &str) -> Vec<Vec<&str>> {
    let mut roles: Vec<Vec<&str>> = vec![Vec::new()];
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let (mut role, mut begins) = (0, true);
    for line in text.lines() {
        let name = line.trim_end().strip_suffix(':').filter(|name| begins && !name.is_empty());
        begins = line.trim().is_empty();
        match name {
            Some(name) => {
                role = *numbers.entry(name).or_insert(roles.len());
                if role == roles.len() {
                    roles.push(Vec::new());
                }
            }
            None if begins => {}
            None => roles[role].push(line),
        }
    }
    roles
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::Samples;

    fn load(folder: &Path, split: Split) -> Result<Dataset, DataError> {
        Text.load(folder, split, &ReadOptions::default())
    }

    fn is_short(read: Result<Dataset, DataError>) -> bool {
        read.unwrap_err().to_string().contains("no role says more than 80 characters in this split")
    }

    fn tokens(set: &Dataset) -> &[u16] {
        let Samples::Tokens(tokens) = set.samples() else { panic!("text is tokens") };
        tokens
    }

    /// Line `number` of a speaker who says `letter`: 40 characters with the line feed.
    fn line(letter: char, number: usize) -> String {
        format!("{number:02}{}\n", letter.to_string().repeat(37))
    }

    /// Ten lines of Ann (400 characters), then six of Bob with an interruption, and one of Cy.
    fn play() -> String {
        let ann: String = (0..5).map(|number| line('a', number)).collect();
        let more: String = (5..10).map(|number| line('a', number)).collect();
        let bob: String = (0..6).map(|number| line('b', number)).collect();
        format!("Ann:\n{ann}\nBob:\n{bob}\nAnn:\n{more}\nCy:\n{}", line('c', 0))
    }

    #[test]
    fn characters_have_numbers() {
        assert_eq!(['\n', ' ', '~', 'é', '\t', 'A'].map(token), [0, 1, 95, 96, 96, 34]);
        let all: std::collections::BTreeSet<u16> = ('\0'..='\u{ff}').map(token).collect();
        assert_eq!(all.len(), VOCABULARY);
    }

    #[test]
    fn windows_cover_a_roles_lines_and_are_labelled_with_what_follows() {
        let train = samples(&play(), Split::Train).unwrap();
        // Ann: 8 lines, 320 characters: windows at 0, 80, 160 and 239. Bob: 4 lines, 160: windows at 0 and 79.
        assert_eq!(train.authors(), [0, 0, 0, 0, 1, 1]);
        assert_eq!((train.len(), train.shape(), train.classes()), (6, &[80][..], 97));
        let ann: Vec<u16> =
            (0..8).flat_map(|number| line('a', number).chars().map(token).collect::<Vec<_>>()).collect();
        for (sample, start) in [0, 80, 160, 239].into_iter().enumerate() {
            assert_eq!(tokens(&train)[sample * 80..][..80], ann[start..start + 80]);
            let next: Vec<u32> = ann[start + 1..=start + 80].iter().map(|&token| token.into()).collect();
            assert_eq!(train.labels_of(sample), next);
        }
    }

    #[test]
    fn the_last_fifth_of_the_lines_is_the_test_rounded_up() {
        // Ann's last 2 of 10 lines are 80 characters, one too few for a window and its label; Bob's are 2 of 6.
        assert!(is_short(samples(&play(), Split::Test)));
        let longer = play().replace("09a", "09aa");
        let test = samples(&longer, Split::Test).unwrap();
        assert_eq!((test.len(), test.authors()), (1, &[0][..]));
        assert_eq!(tokens(&test)[..2], [token('0'), token('8')]);
        assert_eq!(test.labels_of(0)[79], 0, "the line feed at the end");
    }

    #[test]
    fn a_text_without_roles_is_one_speakers() {
        let text: String = (0..10).map(|number| line('x', number)).collect();
        let train = samples(&text, Split::Train).unwrap();
        assert_eq!(train.authors(), [0; 4]);
        // A line that ends with a colon in the middle of a speech is speech.
        let colon = text.replace("03x", "03x:\n03x");
        assert_eq!(samples(&colon, Split::Train).unwrap().authors(), [0; 4]);
        assert!(is_short(samples("", Split::Train)));
    }

    #[test]
    fn lines_may_end_as_on_any_system() {
        let windows = samples(&play().replace('\n', "\r\n"), Split::Train).unwrap();
        assert_eq!(windows, samples(&play(), Split::Train).unwrap());
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || load(folder.path(), Split::Train).unwrap_err().to_string();
        assert!(refused().contains("0 files whose names end in .txt"));
        std::fs::write(folder.path().join("a.txt"), b"Ann:\nabc\xff").unwrap();
        let utf8 = refused();
        assert!(utf8.contains("a.txt: is not UTF-8 text: byte 8"), "{utf8}");
        std::fs::write(folder.path().join("a.txt"), b"Ann:\nabc").unwrap();
        assert!(refused().contains("a.txt: no role says"));
        std::fs::write(folder.path().join("b.txt"), b"").unwrap();
        assert!(refused().contains("2 files whose names end in .txt"));
    }

    #[test]
    fn shakespeare_is_what_it_is_known_to_be() {
        let Some(data) = std::env::var_os("FEDERATION_DATA") else {
            println!("skipped: FEDERATION_DATA is not set");
            return;
        };
        let folder = Path::new(&data).join("shakespeare");
        if !folder.is_dir() {
            println!("skipped: {} is not there", folder.display());
            return;
        }
        let text = read(&find(&folder).unwrap()[0]).unwrap();
        let roles: Vec<usize> = roles(&text).iter().map(Vec::len).filter(|&lines| lines > 0).collect();
        assert_eq!((roles.len(), roles.iter().filter(|&&lines| lines > 2).count()), (299, 255));
        let train = load(&folder, Split::Train).unwrap();
        let test = load(&folder, Split::Test).unwrap();
        // As many clients has the experiment on it.
        assert_eq!(train.authors().last(), Some(&243));
        // Nothing in it is outside of the vocabulary.
        assert_eq!(train.histogram()[VOCABULARY - 1], 0);
        assert!((3.5..4.5).contains(&(train.len() as f64 / test.len() as f64)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([A-Z]{1,3}:\n|[a-z ]{0,90}\n|\n|\u{e9}|\r){0,60}") {
            for split in [Split::Train, Split::Test] {
                if let Ok(set) = samples(&text, split) {
                    prop_assert_eq!(set.authors().len(), set.len());
                }
            }
        }
    }
}
