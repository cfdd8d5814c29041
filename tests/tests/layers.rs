//! Layers: which folder of a crate may import which, and no circles of imports.
//!
//! `layers.txt` lists the folders of each crate from the ground up, each with the folders that it may import. Tests and
//! documentation are left out.

use std::collections::{BTreeMap, BTreeSet};

use federation_tests::imports::Crate;

/// Each crate's folders with those that they may import.
fn layers() -> BTreeMap<&'static str, BTreeMap<&'static str, BTreeSet<String>>> {
    let (mut layers, mut name) = (BTreeMap::<_, BTreeMap<_, _>>::new(), "");
    for line in
        include_str!("../layers.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let Some((folder, imports)) = line.split_once(':') else {
            name = line;
            continue;
        };
        let imports: BTreeSet<_> = imports.split_whitespace().map(str::to_owned).collect();
        let above = layers.entry(name).or_default();
        assert!(
            imports.iter().all(|import| above.contains_key(&**import)),
            "{folder} imports a folder below: {line}"
        );
        above.insert(folder, imports);
    }
    layers
}

#[test]
fn folders_import_only_what_the_list_of_layers_allows() {
    let mut found = Vec::new();
    for (name, allowed) in layers() {
        for (folder, imports) in Crate::read(name).folders() {
            let Some(allowed) = allowed.get(&*folder) else {
                found.push(format!("layers.txt lacks {name}/src/{folder}"));
                continue;
            };
            let forbidden: Vec<_> = imports.difference(allowed).collect();
            if !forbidden.is_empty() {
                found.push(format!("{name}/src/{folder} may not import {forbidden:?}"));
            }
        }
    }
    assert!(found.is_empty(), "see layers.txt:\n{}", found.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for name in layers().keys() {
        let sources = Crate::read(name);
        let mut files = sources.files();
        // A file that imports none of the rest, or that none of the rest imports, is in no circle of them.
        loop {
            let imported: BTreeSet<_> = files.values().flatten().copied().collect();
            let rest: BTreeSet<_> = files
                .iter()
                .filter(|(file, to)| imported.contains(*file) && !to.is_empty())
                .map(|(file, _)| *file)
                .collect();
            if rest.len() == files.len() {
                break;
            }
            files.retain(|file, to| {
                to.retain(|file| rest.contains(file));
                rest.contains(file)
            });
        }
        assert!(files.is_empty(), "these files of {name} import each other in a circle: {files:#?}");
    }
}
