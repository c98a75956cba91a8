//! Production sources as syntax trees: which crate and module each belongs to, without test code.

use std::path::{Path, PathBuf};

use syn::{Attribute, Item};

use super::sources::{self, Source};

/// A parsed file of production code.
pub struct Parsed {
    pub source: Source,
    /// The folder of its crate, such as `crates/session`.
    pub krate: String,
    /// The module at the top of the crate; empty for `lib.rs` and `main.rs`.
    pub module: String,
    /// Its items without those under `#[cfg(test)]`.
    pub items: Vec<Item>,
    /// Its modules in other files that are only built for tests, as paths without `.rs`.
    test_modules: Vec<PathBuf>,
}

/// All production files: no tests, benches or examples, and no crate that only tests use.
pub fn production() -> Vec<Parsed> {
    let parse = |source: Source| {
        let (krate, module) = place_of(&source.path)?;
        let file = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}", source.path.display()));
        let (of_tests, items) =
            file.items.into_iter().partition::<Vec<Item>, _>(|item| is_test(attributes(item)));
        let folder = module_folder(&source.path);
        let test_modules = of_tests.iter().filter_map(|item| match item {
            Item::Mod(item) if item.content.is_none() => Some(folder.join(item.ident.to_string())),
            _ => None,
        });
        let test_modules = test_modules.collect();
        Some(Parsed { source, krate, module, items, test_modules })
    };
    let mut parsed: Vec<Parsed> = sources::all().into_iter().filter_map(parse).collect();
    let only_tested: Vec<PathBuf> =
        parsed.iter().flat_map(|file| file.test_modules.clone()).collect();
    parsed.retain(|file| {
        let module = file.source.path.with_extension("");
        !only_tested.iter().any(|folder| module.starts_with(folder))
    });
    assert!(parsed.len() > 500, "only {} files of production code found", parsed.len());
    parsed
}

/// The crate and the top module of a production file; `None` for other files.
fn place_of(path: &Path) -> Option<(String, String)> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    let is_test = |part: &&str| {
        ["tests", "tests.rs", "testkit", "testkit-kube", "benches", "examples"].contains(part)
    };
    if parts.iter().any(is_test) {
        return None;
    }
    let at = parts.iter().position(|part| *part == "src")?;
    let module = parts[at + 1].trim_end_matches(".rs");
    let module = if ["lib", "main"].contains(&module) { "" } else { module };
    Some((parts[..at].join("/"), module.to_owned()))
}

/// The folder of the files of a file's modules.
fn module_folder(path: &Path) -> PathBuf {
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| path.ends_with(name));
    if is_root { path.parent().unwrap_or(path).to_owned() } else { path.with_extension("") }
}

/// Whether an item is only built for tests.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") {
            return true;
        }
        path.is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
