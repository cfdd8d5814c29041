//! The three forms, with names and without.

use super::*;

fn rows(label: Option<u32>) -> Vec<Row> {
    let row = |sample, class, probabilities: [f64; 3]| Row {
        sample,
        class,
        probabilities: probabilities.to_vec(),
        label,
        gate: None,
    };
    vec![row(0, 0, [0.75, 0.25, 0.0]), row(1, 1, [0.25, 0.5, 0.25])]
}

fn printed(form: &FormArgs, names: Names, label: Option<u32>) -> String {
    let mut out = Vec::new();
    let mut printed = Predictions::new(&mut out, form, names, false);
    let mut score = Score::default();
    for row in rows(label) {
        score.add(&row);
        printed.row(&row).unwrap();
    }
    printed.score(score, "").unwrap();
    String::from_utf8(out).unwrap()
}

fn named() -> Names {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Names::new(texts(&["cat", "dog", "fox"]), texts(&["a.png", "holiday, at the sea/very long/b.png"]))
}

#[test]
fn a_table_has_the_names_of_files_and_classes() {
    let table = FormArgs::default();
    let shown = printed(&table, named(), None);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "file                          class  probability");
    assert_eq!(lines[1], "a.png                           cat       0.7500");
    assert_eq!(lines[2], "… at the sea/very long/b.png    dog       0.5000");
    assert_eq!(
        printed(&FormArgs { top_k: 2, ..table }, Names::default(), Some(0)),
        "  sample  class  probability  label\n       0      0       0.7500      0  then 1 0.2500\n       1      1       \
         0.5000      0  wrong  then 0 0.2500\naccuracy 50.00 % (1 of 2 samples)\n"
    );
}

#[test]
fn json_has_numbers_and_names() {
    let json = FormArgs { json: true, top_k: 2, ..FormArgs::default() };
    let text = printed(&json, named(), Some(1));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["event"], "prediction");
    assert_eq!((&lines[0]["name"], &lines[0]["file"]), (&"cat".into(), &"a.png".into()));
    assert_eq!((&lines[0]["label"], &lines[0]["label-name"]), (&1.into(), &"dog".into()));
    assert_eq!(lines[1]["top"][1]["name"], "cat");
    assert_eq!(lines[2]["accuracy"], 0.5);
    let without = printed(&json, Names::default(), None);
    assert!(
        !without.contains("label") && !without.contains("accuracy") && !without.contains("name"),
        "{without}"
    );
}

#[test]
fn csv_has_a_line_per_sample_and_a_heading() {
    let csv = FormArgs { csv: true, top_k: 2, ..FormArgs::default() };
    assert_eq!(
        printed(&csv, named(), None),
        "sample,file,class,name,probability,class-2,name-2,probability-2\n\
         0,a.png,0,cat,0.75,1,dog,0.25\n\
         1,\"holiday, at the sea/very long/b.png\",1,dog,0.5,0,cat,0.25\n"
    );
}
