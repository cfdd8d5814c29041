//! Every format: what is written is read back as the configuration that was meant.

use shared::data::{Dataset, Samples, Split, idx, safetensors};

use super::*;
use crate::config::Config;

/// The configuration for what `fill` puts into a folder.
fn config(fill: impl FnOnce(&Path)) -> (Config, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("my data");
    std::fs::create_dir(&data).expect("a folder in it");
    fill(&data);
    let suggestion = Suggestion::of(&data, "my data", "mine").unwrap_or_else(|error| panic!("{error}"));
    let file = folder.path().join("run.toml");
    std::fs::write(&file, &suggestion.text).expect("written");
    let none = shared::id::RunId::from_bytes([0; 8]);
    let config =
        Config::read(Some(&file), &[], none).unwrap_or_else(|error| panic!("{error}\n{}", suggestion.text));
    let shares = crate::data::shares(&config).unwrap_or_else(|error| panic!("{error}\n{}", suggestion.text));
    assert!(shares.iter().all(|share| !share.is_empty()), "{}", suggestion.text);
    // `simulate` reads these as well; where there are none, clients hold some out.
    let tests = crate::data::test_set(&config).unwrap_or_else(|error| panic!("{error}\n{}", suggestion.text));
    assert_eq!(tests.is_some(), suggestion.survey.test, "{}", suggestion.text);
    assert!(suggestion.text.lines().all(|line| line.chars().count() <= 130), "{}", suggestion.text);
    (config, suggestion.text)
}

fn table(folder: &Path, file: &str, rows: usize) {
    let row = |at: usize| format!("{}.5,{},{}\n", at, 100 * at, ["setosa", "\"vir\"\"g\""][at % 2]);
    let text: String = (0..rows).map(row).collect();
    std::fs::write(folder.join(file), format!("length,width,species\n{text}")).expect("written");
}

#[test]
fn a_table_with_its_label_column_and_its_scales() {
    let (config, text) = config(|folder| {
        table(folder, "train.csv", 40);
        table(folder, "test.csv", 10);
    });
    assert_eq!(config.spec.data.class_names, ["setosa", "vir\"g"]);
    assert_eq!((&config.spec.data.shape[..], &config.spec.data.column[..]), (&[2][..], "species"));
    assert!(text.contains("normalise = \"channels\"") && text.contains("mlp-2nn"), "{text}");
    assert!(!text.contains("[evaluate]"), "{text}");
}

#[test]
fn a_table_of_numbers_to_learn_and_tensors_of_flags() {
    let (config, text) = config(|folder| {
        for (file, rows) in [("train.csv", 40), ("test.csv", 10)] {
            let rows: String = (0..rows).map(|row| format!("{row},{}.5\n", 3 * row)).collect();
            std::fs::write(folder.join(file), format!("area,price\n{rows}")).expect("written");
        }
    });
    assert_eq!(config.spec.architecture.task, models::Task::Regression { huber: None });
    assert_eq!((config.spec.architecture.classes, &config.spec.data.column[..]), (1, "price"));
    assert!(text.contains("optimizer = { adam ="), "{text}");
    let (config, _) = self::config(|folder| {
        for split in [Split::Train, Split::Test] {
            let flags = (0..60).map(|at| f32::from(u8::from(at % 7 < 3))).collect();
            let set = Dataset::valued(vec![2], Samples::Floats(vec![0.5; 40]), flags, 3);
            safetensors::write_split(folder, split, &set.expect("20 samples")).expect("written");
        }
    });
    assert_eq!(
        (config.spec.architecture.task, config.spec.architecture.classes),
        (models::Task::MultiLabel, 3)
    );
}

#[test]
fn a_table_without_a_test_split_is_tested_by_its_clients() {
    let (config, _) = config(|folder| table(folder, "train.csv", 40));
    assert_eq!((config.spec.evaluate.every, config.spec.evaluate.on_clients_every), (0, 1));
    assert!(config.spec.evaluate.hold_out > 0.1);
}

#[test]
fn images_by_class() {
    let (config, text) = config(|folder| {
        for (class, grey) in [("cat", 10), ("dog # 2", 200)] {
            let place = folder.join("train").join(class);
            std::fs::create_dir_all(&place).expect("a folder");
            for at in 0..10 {
                let png = png(grey + at);
                std::fs::write(place.join(format!("{at}.png")), png).expect("written");
            }
            std::fs::write(place.join("Thumbs.db"), "x").expect("written");
        }
    });
    assert_eq!(config.spec.data.class_names, ["cat", "dog # 2"]);
    assert_eq!(config.spec.data.shape, [1, 8, 8]);
    assert!(text.contains("shape = \"1x8x8\""), "{text}");
}

/// A grey image of 8x8 pixels, of uncompressed blocks.
fn png(grey: u8) -> Vec<u8> {
    fn chunk(kind: [u8; 4], content: &[u8]) -> Vec<u8> {
        let named = [&kind[..], content].concat();
        let checksum = crc32fast::hash(&named);
        [&(content.len() as u32).to_be_bytes()[..], &named, &checksum.to_be_bytes()].concat()
    }
    let rows = [&[0][..], &[grey; 8]].concat().repeat(8);
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in &rows {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let length = rows.len() as u16;
    let stream = [
        &[0x78, 0x01, 1][..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        &rows,
        &(b << 16 | a).to_be_bytes(),
    ]
    .concat();
    let header = [&8_u32.to_be_bytes()[..], &8_u32.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    [&b"\x89PNG\r\n\x1a\n"[..], &chunk(*b"IHDR", &header), &chunk(*b"IDAT", &stream), &chunk(*b"IEND", &[])]
        .concat()
}

#[test]
fn safetensors_and_idx_files() {
    let (config, _) = config(|folder| {
        let values = (0..60).map(|value| value as f32).collect();
        let set =
            Dataset::labelled(vec![1, 3], Samples::Floats(values), (0..20).map(|at| at % 4).collect(), 4);
        safetensors::write_split(folder, Split::Train, &set.expect("20 samples")).expect("written");
    });
    assert_eq!((config.spec.architecture.classes, &config.spec.data.shape[..]), (4, &[1, 3][..]));
    let (config, text) = self::config(|folder| {
        for split in [Split::Train, Split::Test] {
            let labels: Vec<u8> = (0..20).map(|at| at % 7).collect();
            let set = Dataset::new(vec![1, 28, 28], vec![9; 20 * 784], labels, 7).expect("20 samples");
            idx::write_split(folder, split, &set).expect("written");
        }
    });
    assert_eq!(config.spec.architecture.classes, 7);
    assert!(text.contains("lenet-5") && text.contains("set = \"idx\""), "{text}");
}

#[test]
fn text_by_role() {
    let (config, text) = config(|folder| {
        let line = "It was the best of times, it was the worst of times, it was the age of wisdom.\n";
        std::fs::write(folder.join("book.txt"), format!("ANNA:\n{0}\nOTTO:\n{0}", line.repeat(20)))
            .expect("written");
    });
    assert_eq!(config.spec.architecture.name, "char-lstm");
    assert!(text.contains("set = \"text\""), "{text}");
}

#[test]
fn everything_that_is_missing_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("train.csv"), "id,town,size,label\nq1,Rome,1,0\nq2,Oslo,2,1\n")
        .expect("written");
    let said = Suggestion::of(folder.path(), "x", "x").expect_err("two columns of text").to_string();
    assert!(said.contains("`id`") && said.contains("`town`") && said.contains("label"), "{said}");
}
