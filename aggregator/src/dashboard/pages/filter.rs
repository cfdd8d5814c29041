//! What a list is narrowed down to.

use maud::{Markup, html};
use serde::Deserialize;

/// The words that a visitor has typed.
#[derive(Debug, Default, Deserialize)]
pub(in crate::dashboard) struct Wanted {
    #[serde(default)]
    pub(super) q: String,
}

impl Wanted {
    /// Whether each of the words is in one of these texts.
    pub(super) fn is_in<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let texts: Vec<String> = texts.into_iter().map(str::to_lowercase).collect();
        let wanted = self.q.to_lowercase();
        wanted.split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
    }

    /// The form of the list at `place`, of what is called `things`; `such_as` says what words are looked for.
    pub(super) fn form(&self, place: &str, things: &str, such_as: &str) -> Markup {
        html! {
            form.filter method="get" action=(place) role="search" {
                label for="q" { "Show " (things) " with" }
                input #q type="search" name="q" value=(self.q) placeholder=(such_as);
                button type="submit" { "Filter" }
            }
        }
    }
}
