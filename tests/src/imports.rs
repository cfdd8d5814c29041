//! Imports between the files and folders of a crate, read from its production sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module or an item from its crate's root, which is empty.
type Names = Vec<String>;

/// What a file imports, as written, and the names that it re-exports.
struct Source {
    file: PathBuf,
    imports: Vec<Names>,
    exports: BTreeMap<String, Names>,
    /// Files of tests that it declares.
    tests: Vec<String>,
}

impl Source {
    fn parse(file: PathBuf, code: &str) -> Self {
        let tokens = tokens(code);
        let (mut imports, mut exports, mut at) = (Vec::new(), BTreeMap::new(), 0);
        while at < tokens.len() {
            let rest = &tokens[at..];
            let end = rest.iter().position(|token| token == ";").filter(|_| rest[0] == "use");
            if let Some(end) = end {
                let is_public = at > 0 && ["pub", ")"].contains(&&*tokens[at - 1]);
                for (path, name) in used(&[], &rest[1..end]) {
                    if is_public {
                        exports.insert(name, path.clone());
                    }
                    imports.push(path);
                }
                at += end;
            } else {
                let joints = rest.iter().skip(1).step_by(2).take_while(|token| *token == "::").count();
                let path = rest.iter().step_by(2).take(joints + 1).take_while(|token| is_name(token));
                imports.push(path.cloned().collect());
                at += 2 * joints + 1;
            }
        }
        let test_only = code.split("#[cfg(test)]\n").skip(1).filter_map(|rest| rest.lines().next());
        let tests = test_only.filter_map(|line| line.strip_suffix(';')?.split(' ').next_back());
        let tests = tests.map(str::to_owned).collect();
        Self { file, imports, exports, tests }
    }
}

/// Names, `::`, and every other character by itself, without comments, texts and the tests, which stand last in a file.
fn tokens(code: &str) -> Vec<String> {
    let end = code.find("mod tests {").or(code.find("#[cfg(all(test")).unwrap_or(code.len());
    let lines = code[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "").replace("'\"'", "");
    let code = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let mut tokens: Vec<String> = Vec::new();
    for line in code.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        let mut is_adjacent = false;
        for character in line.chars() {
            let joins = |last: &String| match character {
                ':' => last == ":",
                _ => is_name(last) && (character.is_alphanumeric() || character == '_'),
            };
            match tokens.last_mut() {
                Some(last) if is_adjacent && joins(last) => last.push(character),
                _ if character.is_whitespace() => {}
                _ => tokens.push(character.to_string()),
            }
            is_adjacent = !character.is_whitespace();
        }
    }
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The paths of a `use` below `prefix`, each with the name that it gets.
fn used(prefix: &[String], tokens: &[String]) -> Vec<(Names, String)> {
    let brace = tokens.iter().position(|token| token == "{");
    let mut names = tokens[..brace.unwrap_or(tokens.len())].iter().filter(|token| is_name(token));
    let path: Names = prefix.iter().chain(names.clone().take_while(|name| *name != "as")).cloned().collect();
    let Some(brace) = brace else {
        return names.next_back().map(|name| (path, name.clone())).into_iter().collect();
    };
    let (mut depth, mut items, mut from) = (0, Vec::new(), brace + 1);
    for (at, token) in tokens.iter().enumerate().skip(brace) {
        depth += i32::from(token == "{") - i32::from(token == "}");
        if token == "," && depth == 1 || depth == 0 {
            items.extend(used(&path, &tokens[from..at]));
            from = at + 1;
        }
    }
    items
}

/// The production sources of a crate, by module.
pub struct Crate(BTreeMap<Names, Source>);

impl Crate {
    /// Reads `name/src` of this workspace.
    ///
    /// # Panics
    /// If the sources cannot be read.
    #[must_use]
    pub fn read(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name).join("src");
        let (mut folders, mut sources) = (vec![root.clone()], BTreeMap::new());
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder).expect("sources are readable");
            for file in entries.map(|entry| entry.expect("listed").path()) {
                if file.is_dir() {
                    folders.push(file);
                } else if file.extension().is_some_and(|extension| extension == "rs") {
                    let path = file.strip_prefix(&root).expect("it was found there").with_extension("");
                    let mut module: Names = path.iter().map(|name| name.to_string_lossy().into()).collect();
                    module.pop_if(|name| ["mod", "lib", "main"].contains(&&**name));
                    let code = fs::read_to_string(&file).expect("sources are readable");
                    sources.insert(module, Source::parse(file, &code));
                }
            }
        }
        let tests = sources.iter().flat_map(|(module, source): (&Names, &Source)| {
            source.tests.iter().map(move |test| [&module[..], std::slice::from_ref(test)].concat())
        });
        let tests: Vec<Names> = tests.collect();
        sources.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self(sources)
    }

    /// The path from the crate's root; `None` if it leads to another crate.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Names> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "super" => Some([&from[..from.len().checked_sub(ups)?], &path[ups..]].concat()),
            first => {
                let child = [from, if first == "self" { &path[1..] } else { path }].concat();
                self.0.contains_key(&child[..(from.len() + 1).min(child.len())]).then_some(child)
            }
        }
    }

    /// The module that defines the item of this path, through re-exports.
    fn home(&self, path: &[String]) -> Names {
        let depth = (0..=path.len()).rev().find(|&depth| self.0.contains_key(&path[..depth]));
        let (module, item) = path.split_at(depth.unwrap_or_default());
        let exported = item.first().and_then(|name| self.0.get(module)?.exports.get(name));
        match exported.and_then(|path| self.absolute(module, path)) {
            Some(origin) if origin != path => self.home(&origin),
            _ => module.to_vec(),
        }
    }

    /// What each folder or file of the crate's root imports of the others.
    #[must_use]
    pub fn folders(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges = BTreeMap::<_, BTreeSet<_>>::new();
        for (module, source) in self.0.iter().filter(|(module, _)| !module.is_empty()) {
            let imported =
                source.imports.iter().filter_map(|path| self.absolute(module, path)?.into_iter().next());
            let others =
                imported.filter(|to| *to != module[0] && self.0.contains_key(std::slice::from_ref(to)));
            edges.entry(module[0].clone()).or_default().extend(others);
        }
        edges
    }

    /// What each file imports of the others. A module may use those around it: they are one thing.
    #[must_use]
    pub fn files(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let imported = |(module, source): (&Names, &Source)| -> BTreeSet<&Path> {
            let paths = source.imports.iter().filter_map(|path| self.absolute(module, path));
            let homes = paths.map(|path| self.home(&path)).filter(|home| !module.starts_with(home));
            homes.filter_map(|home| Some(&*self.0.get(&home)?.file)).collect()
        };
        self.0.iter().map(|entry| (&*entry.1.file, imported(entry))).collect()
    }
}
