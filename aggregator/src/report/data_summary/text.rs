//! The data summary for a terminal.

use std::fmt::Write as _;

use super::{Description, Range};
use models::shape::spelled;

use crate::report::units::{counted, grouped};

/// The most clients that are drawn.
const DRAWN: usize = 40;
/// Characters of the bar of sizes.
const BAR: usize = 16;
/// From few to many samples.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// Data, partition and clients as lines of at most `columns` characters where the classes allow it, with a picture: a row
/// per client, a column per class, the darker the more samples.
///
/// ```text
/// client samples                   0 1 2 3 4 5 6 7 8 9
///      0     600 ################      ██      ██
/// ```
#[must_use]
pub fn text(description: &Description, columns: usize) -> String {
    let figures = &description.figures;
    let shape = spelled(&description.shape);
    let mut text = format!(
        "{}: {} of shape {shape} and {} to train on, {} to test on\n{}, {} (run.seed = {})\n",
        description.set,
        counted(description.train, "sample"),
        description.learned(),
        grouped(description.test),
        counted(description.clients.len(), "client"),
        description.partition,
        description.seed
    );
    if description.labels_each > 1 {
        let _ = writeln!(
            text,
            "each sample has {} labels, which are what is counted below",
            description.labels_each
        );
    }
    for left_out in &description.left_out {
        let _ = writeln!(text, "left out, since they cannot be used: {left_out}");
    }
    if figures.absent > 0 {
        let _ = writeln!(text, "{} of them without a sample: they do not take part", grouped(figures.absent));
    }
    let _ = write!(text, "samples per client {}", range(figures.samples));
    if description.learned.is_none() {
        let (classes, skew) = (range(figures.classes), figures.skew);
        let _ = write!(text, "; classes per client {classes}; label skew {skew:.2} (0 is IID)");
    }
    text.push('\n');
    if let Some(stream) = description.stream() {
        let _ = writeln!(text, "a client trains on {stream}");
    }
    if !description.class_names.is_empty() {
        text.push_str(&legend(&description.class_names, columns));
    }
    text.push('\n');
    text.push_str(&picture(description, columns));
    let hidden = description.clients.len().saturating_sub(DRAWN);
    if hidden > 0 {
        let _ = writeln!(text, "and {} (--json and --html have all)", counted(hidden, "more client"));
    }
    text
}

/// The names of the classes with their numbers, which head the columns, in lines of at most `columns` characters.
fn legend(names: &[String], columns: usize) -> String {
    let mut text = "classes".to_owned();
    let mut length = text.len();
    for (class, name) in names.iter().enumerate() {
        let comma = if class + 1 < names.len() { "," } else { "" };
        let entry = format!(" {class} {name}{comma}");
        if length + entry.chars().count() > columns {
            text.push_str("\n       ");
            length = "       ".len();
        }
        length += entry.chars().count();
        text.push_str(&entry);
    }
    text.push('\n');
    text
}

fn range(range: Range) -> String {
    if range.min == range.max {
        return grouped(range.min);
    }
    format!("{} to {}, median {}", grouped(range.min), grouped(range.max), grouped(range.median))
}

fn picture(description: &Description, columns: usize) -> String {
    let clients = &description.clients[..description.clients.len().min(DRAWN)];
    let size = |counts: &Vec<usize>| counts.iter().sum::<usize>();
    let largest = description.clients.iter().map(size).max().unwrap_or(0).max(1);
    let greatest = description.clients.iter().flatten().copied().max().unwrap_or(0).max(1);
    let digits = grouped(largest).len().max("samples".len());
    // One or two characters a class, as there is room.
    let left = "client".len() + 1 + digits + 1 + BAR + 1;
    let width = if left + 3 * description.classes <= columns { 3 } else { 1 };
    let mut text = format!("client {:>digits$} {:BAR$} ", "samples", "");
    if description.learned.is_some() {
        text.push_str("all");
    } else if width == 3 {
        for class in 0..description.classes {
            let _ = write!(text, "{class:<3}");
        }
    } else {
        let _ = write!(text, "classes 0 to {}", description.classes.saturating_sub(1));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for (client, counts) in clients.iter().enumerate() {
        let samples = size(counts);
        let bar = "#".repeat((samples * BAR).div_ceil(largest));
        let mut line = format!("{client:>6} {:>digits$} {bar:BAR$} ", grouped(samples));
        for &count in counts {
            let shade = match (count * SHADES.len()).div_ceil(greatest) {
                0 => '·',
                level => SHADES[level - 1],
            };
            line.extend(std::iter::repeat_n(shade, width.min(2)));
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(2)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::description;
    use super::*;

    #[test]
    fn golden_text() {
        let text = text(&description(vec![vec![600, 0, 0], vec![0, 150, 450], vec![0, 0, 0]]), 80);
        let expected = "\
glyphs: 1,200 samples of shape 1x28x28 and 3 classes to train on, 2,000 to test on
3 clients, sorted by label, 2 shards per client (run.seed = 1)
1 of them without a sample: they do not take part
samples per client 600; classes per client 1 to 2, median 1; label skew 0.50 (0 is IID)

client samples                  0  1  2
     0     600 ################ ██ ·· ··
     1     600 ################ ·· ░░ ▓▓
     2       0                  ·· ·· ··
";
        assert_eq!(text, expected);
    }

    #[test]
    fn classes_are_named_beside_their_numbers() {
        let names = ["cat", "dog", "arctic fox"].map(str::to_owned).to_vec();
        let named = Description { class_names: names, ..description(vec![vec![1, 2, 3]]) };
        let shown = text(&named, 80);
        assert!(shown.contains("\nclasses 0 cat, 1 dog, 2 arctic fox\n"), "{shown}");
        let narrow = text(&named, 24);
        assert!(narrow.contains("\nclasses 0 cat, 1 dog,\n        2 arctic fox\n"), "{narrow}");
    }

    #[test]
    fn slices_are_told_of() {
        let sliced = Description { slices: 10, ..description(vec![vec![600, 5], vec![5, 600]]) };
        assert!(text(&sliced, 80).contains(
            "\na client trains on one of 10 slices a round, half of the clients at most 61 samples"
        ));
    }

    #[test]
    fn many_classes_and_clients_stay_on_the_screen() {
        let text = text(&description(vec![vec![7; 47]; 1000]), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
        assert_eq!(text.lines().count(), 5 + DRAWN + 1);
        assert!(text.contains("classes 0 to 46") && text.contains("and 960 more clients"), "{text}");
    }
}
